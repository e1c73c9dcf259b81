"""Bad input is refused before anything is queued, with one clear message, and harms nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

GOOD = np.ones((1, 2, 3, 4), np.float32)
WANTED = r"input 'x': wanted float32 of shape \(1, 2, 3, 4\), given "

BAD: list[tuple[str, Any, str]] = [
    ("float64", GOOD.astype(np.float64), WANTED + r"float64 of shape .*; convert it with \.astype\(numpy\.float32\)"),
    ("float16", GOOD.astype(np.float16), WANTED + "float16"),
    ("uint8", GOOD.astype(np.uint8), WANTED + "uint8"),
    ("int64", GOOD.astype(np.int64), WANTED + "int64"),
    ("complex64", GOOD.astype(np.complex64), WANTED + "complex64"),
    ("objects", GOOD.astype(object), WANTED + "object"),
    ("strings", GOOD.astype("U3"), WANTED + "<U3"),
    ("foreign byte order", GOOD.astype(">f4"), WANTED + "float32 in foreign byte order"),
    ("rank 3", GOOD[0], WANTED + r"float32 of shape \(2, 3, 4\)"),
    ("wrong last axis", np.ones((1, 2, 3, 5), np.float32), WANTED + r"float32 of shape \(1, 2, 3, 5\)"),
    ("same bytes", GOOD.transpose(0, 1, 3, 2), WANTED + r".*\(1, 2, 4, 3\); the element counts agree but the axes do"),
    ("wrong batch", np.ones((4, 2, 3, 4), np.float32), WANTED + r"float32 of shape \(4, 2, 3, 4\)"),
    ("nothing", None, "input 'x': wanted float32 of shape .* given object"),
    ("text", "hello", WANTED + "<U5"),
    ("nested list", [[[[1.0] * 4] * 3] * 2], WANTED + "float64"),
    ("ragged list", [[1.0, [2.0]]], "input 'x': wanted .* that numpy cannot take"),
    (
        "two arrays",
        [GOOD, GOOD],
        r"wanted 1 input \(x: float32\[1, 2, 3, 4\]\), given 2: a list or tuple is one array per",
    ),
    ("empty mapping", {}, "missing input 'x'; wanted x: float32"),
    ("unknown name", {"z": GOOD}, "no input is named 'z'; wanted x: float32"),
    ("extra name", {"x": GOOD, "z": GOOD}, "no input is named 'z'"),
    ("masked array", np.ma.masked_array(GOOD, mask=GOOD > 0), "a masked array was given"),
]


@pytest.mark.parametrize("given,message", [case[1:] for case in BAD], ids=[case[0] for case in BAD])
async def test_bad_input_names_what_was_wanted_and_given(given: Any, message: str) -> None:
    async with aioascend.Session(kit.pos()) as session:
        for door in (session.infer, session.submit):
            with pytest.raises(aioascend.InvalidInput, match=message) as caught:
                await door(given)
            assert isinstance(caught.value, ValueError)
        assert session.statistics().completed == 0
        np.testing.assert_array_equal((await session.infer(GOOD))[0], kit.POS_WEIGHT[None])


async def test_a_thousand_bad_calls_leave_the_session_as_it_was() -> None:
    async with aioascend.Session(kit.pos()) as session:
        for _ in range(1000):
            with pytest.raises(aioascend.InvalidInput):
                await session.infer(GOOD.astype(np.float64))
        assert session.statistics() == session.statistics()
        assert session.statistics().failed == 0
        np.testing.assert_array_equal((await session.infer(GOOD))[0], kit.POS_WEIGHT[None])


async def test_swapped_inputs_are_told_by_name() -> None:
    async with aioascend.Session(kit.several()) as session:
        with pytest.raises(aioascend.InvalidInput, match="input 'a': wanted float32"):
            await session.infer([np.array(3), np.zeros((2, 3), np.float32)])
        with pytest.raises(aioascend.InvalidInput, match="missing input 'k'"):
            await session.infer({"a": np.zeros((2, 3), np.float32)})
        with pytest.raises(aioascend.InvalidInput, match="input 'k': wanted int64"):
            await session.infer({"a": np.zeros((2, 3), np.float32), "k": 1.5})
        with pytest.raises(aioascend.InvalidInput, match="input 'k': wanted int64"):
            await session.infer({"a": np.zeros((2, 3), np.float32), "k": 2**80})


@pytest.mark.parametrize("timeout", ["soon", float("nan"), True])
async def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    async with aioascend.Session(kit.pos()) as session:
        with pytest.raises(aioascend.InvalidInput, match="timeout: wanted seconds"):
            await session.infer(GOOD, timeout=timeout)


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"depth": 0}, "depth: wanted a whole number of at least 1, given 0"),
        ({"depth": 1.5}, "depth: wanted a whole number"),
        ({"depth": 257}, "depth: wanted at most 256, given 257"),
        ({"instances": -1}, "instances: wanted"),
        ({"max_waiting": True}, "max_waiting: wanted"),
        ({"shapes": {"x": "abc"}}, "shapes: wanted"),
        ({"shapes": [1, 2]}, "shapes: wanted"),
        ({"model": 7}, "model: wanted a path or bytes, given int"),
        ({"shapes": {"x": (2.7, 3)}}, "shapes: wanted"),
        ({"shapes": {"x": "23"}}, "shapes: wanted"),
        ({"shapes": {"x": (True, 3)}}, "shapes: wanted"),
        ({"shapes": {"x": (2**63, 3)}}, "shapes: 'x' .* is larger than any memory"),
        ({"examples": 5}, "examples: wanted"),
        ({"devices": None}, "devices: wanted"),
        ({"devices": [0]}, "devices: wanted"),
    ],
)
def test_arguments_are_checked_when_the_session_is_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(aioascend.InvalidInput, match=message):
        aioascend.Session(**{"model": kit.pos(), **arguments})
