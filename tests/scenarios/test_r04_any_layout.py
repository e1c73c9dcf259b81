"""R04: an array of any memory layout gives the answer of its C-contiguous copy, bit for bit, and stays as it was.

The emulator is given the same pinned bytes as an NPU, so that a copy that ignored the strides would show here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

VALUES = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4) - 7
ANSWER = VALUES * kit.POS_WEIGHT


class Subclass(np.ndarray):
    """What other libraries derive from arrays."""


def every_second(x: np.ndarray) -> np.ndarray:
    wide = np.full([2 * size for size in x.shape], np.nan, x.dtype)
    part = wide[tuple(slice(None, None, 2) for _ in x.shape)]
    part[...] = x
    return part


def read_only(x: np.ndarray) -> np.ndarray:
    copy = x.copy()
    copy.setflags(write=False)
    return copy


def misaligned(x: np.ndarray) -> np.ndarray:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    view = raw[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    assert not view.flags.aligned
    return view


def reversed_axes(*axes: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.flip(np.ascontiguousarray(np.flip(x, axes)), axes)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C order": lambda x: x,
    "Fortran order": np.asfortranarray,
    "NHWC seen as NCHW": lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "every second of a larger array on every axis": every_second,
    "reversed last axis": reversed_axes(3),
    "reversed first axes": reversed_axes(1, 2),
    "reversed every axis": reversed_axes(0, 1, 2, 3),
    "column block of a wider array": lambda x: np.concatenate([x, x, x], axis=-1)[..., 4:8],
    "read-only": read_only,
    "misaligned": misaligned,
    "array subclass": lambda x: x.view(Subclass),
    **{
        f"axes laid out as {order}": lambda x, order=order: np.ascontiguousarray(x.transpose(order)).transpose(
            np.argsort(order)
        )
        for order in itertools.permutations(range(4))
    },
}


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if not name.startswith("axes")])
async def test_each_layout_alone(layout: str) -> None:
    async with aioascend.Session(kit.pos()) as session:
        given = LAYOUTS[layout](VALUES)
        before = np.array(given)
        np.testing.assert_array_equal((await session.infer(given))[0], ANSWER)
        np.testing.assert_array_equal((await (await session.submit(given)))[0], ANSWER)
        np.testing.assert_array_equal(given, before)


async def test_500_calls_of_mixed_layouts_16_at_a_time(standing) -> None:
    async with aioascend.Session(kit.pos()) as session, standing(session, VALUES, ANSWER):
        cases = [(i, name) for i, name in zip(range(500), itertools.cycle(LAYOUTS), strict=False)]
        turns = asyncio.Semaphore(16)

        async def one(value: int, name: str) -> None:
            async with turns:
                given = LAYOUTS[name](VALUES + np.float32(value))
                outputs = await session.infer(given)
                expected = (VALUES + np.float32(value)) * kit.POS_WEIGHT
                np.testing.assert_array_equal(outputs[0], expected, err_msg=name)
                np.testing.assert_array_equal(given, VALUES + np.float32(value), err_msg=f"{name} was written to")

        await asyncio.gather(*(one(value, name) for value, name in cases))


async def test_broadcast_arrays_of_every_kind_and_a_memory_map(tmp_path: Path) -> None:
    async with aioascend.Session(kit.pos()) as session:
        for small in ((4,), (3, 1), (2, 1, 1), (1, 1, 1, 1), (2, 3, 4)):
            values = np.arange(np.prod(small), dtype=np.float32).reshape(small) + 1
            outputs = await session.infer(np.broadcast_to(values, (1, 2, 3, 4)))
            np.testing.assert_array_equal(outputs[0], np.broadcast_to(values * kit.POS_WEIGHT, (1, 2, 3, 4)))
        path = tmp_path / "x.bin"
        VALUES.tofile(path)
        outputs = await session.infer(np.memmap(path, np.float32, "r", shape=VALUES.shape))
        np.testing.assert_array_equal(outputs[0], ANSWER)


async def test_the_same_layouts_at_the_size_where_a_worker_copies() -> None:
    shape = (1, 8, 256, 256)  # 2 MiB
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    async with aioascend.Session(kit.identity(1, shape)) as session:
        for name in ("Fortran order", "NHWC seen as NCHW", "reversed every axis", "misaligned"):
            np.testing.assert_array_equal((await session.infer(LAYOUTS[name](x)))[0], x, err_msg=name)
        np.testing.assert_array_equal((await session.infer(every_second(x)))[0], x)
