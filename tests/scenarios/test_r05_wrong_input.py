"""R05: wrong dtype, rank, shape or name is refused before anything is queued, in one sentence that says what to do.

It names the input, what was wanted and what was given; equal byte counts prove nothing and nothing is cast silently.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

GOOD = np.ones((1, 2, 3, 4), np.float32)
ANSWER = kit.POS_WEIGHT[None]
WANTED = r"input 'x': wanted float32 of shape \(1, 2, 3, 4\), given "

BAD: list[tuple[str, Any, str]] = [
    ("float64", GOOD.astype(np.float64), WANTED + r"float64 of shape .*; convert it with \.astype\(numpy\.float32\)"),
    ("float16", GOOD.astype(np.float16), WANTED + "float16"),
    ("uint8", GOOD.astype(np.uint8), WANTED + "uint8"),
    ("int64", GOOD.astype(np.int64), WANTED + "int64"),
    ("complex64", GOOD.astype(np.complex64), WANTED + "complex64"),
    ("objects", GOOD.astype(object), WANTED + "object"),
    ("strings", GOOD.astype("U3"), WANTED + "<U3"),
    ("bytes", GOOD.astype("S3"), WANTED + r"\|S3"),
    ("times", np.zeros(GOOD.shape, "M8[s]"), WANTED + "datetime64"),
    ("records", np.zeros(GOOD.shape, [("a", "f4")]), WANTED),
    ("foreign byte order", GOOD.astype(">f4"), WANTED + "float32 in foreign byte order"),
    ("rank 3", GOOD[0], WANTED + r"float32 of shape \(2, 3, 4\)"),
    ("rank 5", GOOD[None], WANTED + r"float32 of shape \(1, 1, 2, 3, 4\)"),
    ("wrong last axis", np.ones((1, 2, 3, 5), np.float32), WANTED + r"float32 of shape \(1, 2, 3, 5\)"),
    ("same bytes", GOOD.transpose(0, 1, 3, 2), WANTED + r".*\(1, 2, 4, 3\); the element counts agree but the axes do"),
    ("same bytes, other dtype", GOOD.view(np.int32), WANTED + "int32"),
    ("flat", GOOD.ravel(), WANTED + r"float32 of shape \(24,\)"),
    ("wrong batch", np.ones((4, 2, 3, 4), np.float32), WANTED + r"float32 of shape \(4, 2, 3, 4\)"),
    ("no rows", np.ones((0, 2, 3, 4), np.float32), WANTED + r"float32 of shape \(0, 2, 3, 4\)"),
    ("nothing", None, "input 'x': wanted float32 of shape .* given object"),
    ("text", "hello", WANTED + "<U5"),
    ("a number", 3.5, WANTED + "float64"),
    ("nested list", [[[[1.0] * 4] * 3] * 2], WANTED + "float64"),
    ("ragged list", [[1.0, [2.0]]], "input 'x': wanted .* that numpy cannot take"),
    (
        "two arrays",
        [GOOD, GOOD],
        r"wanted 1 input \(x: float32\[1, 2, 3, 4\]\), given 2: a list or tuple is one array per",
    ),
    ("missing name", {}, "missing input 'x'; wanted x: float32"),
    ("unknown name", {"z": GOOD}, "no input is named 'z'; wanted x: float32"),
    ("extra name", {"x": GOOD, "z": GOOD}, "no input is named 'z'"),
    ("masked array", np.ma.masked_array(GOOD, mask=GOOD > 0), "a masked array was given"),
]


@pytest.mark.parametrize("given, message", [case[1:] for case in BAD], ids=[case[0] for case in BAD])
async def test_each_mistake_is_named_at_every_door_and_queues_nothing(given: Any, message: str) -> None:
    async with aioascend.Session(kit.pos()) as session:
        for door in (session.infer, session.submit):
            with pytest.raises(aioascend.InvalidInput, match=message) as caught:
                await door(given)
            assert isinstance(caught.value, ValueError)
            assert "\n" not in str(caught.value)
        now = session.statistics()
        assert (now.completed, now.failed, now.cancelled, now.waiting) == (0, 0, 0, 0)
        np.testing.assert_array_equal((await session.infer(GOOD))[0], ANSWER)


async def test_a_model_of_two_inputs_tells_swapped_missing_and_wrong_ones_by_name() -> None:
    a = np.zeros((2, 3), np.float32)
    async with aioascend.Session(kit.several()) as session:
        for given, message in [
            ([np.array(3), a], "input 'a': wanted float32"),
            ((a,), "wanted 2 inputs .*, given 1"),
            (a, "wanted 2 inputs"),
            ({"a": a}, "missing input 'k'"),
            ({"a": a, "k": 1.5}, "input 'k': wanted int64"),
            ({"a": a, "k": 2**80}, "input 'k': wanted int64"),
            ({"A": a, "k": 3}, "no input is named 'A'"),
        ]:
            with pytest.raises(aioascend.InvalidInput, match=message):
                await session.infer(given)
        assert (await session.infer({"k": 3, "a": a}))["ints"].tolist() == [3, 4, 5, 6, 7]


async def test_a_thousand_bad_calls_and_then_a_good_one(standing) -> None:
    async with aioascend.Session(kit.pos()) as session, standing(session, GOOD, ANSWER):
        before = session.statistics()
        for i in range(1000):
            with pytest.raises(aioascend.InvalidInput):
                await session.infer(BAD[i % len(BAD)][1])
        assert session.statistics() == before


@pytest.mark.parametrize("timeout", ["soon", float("nan"), True])
async def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    async with aioascend.Session(kit.pos()) as session:
        with pytest.raises(aioascend.InvalidInput, match="timeout: wanted seconds"):
            await session.infer(GOOD, timeout=timeout)
