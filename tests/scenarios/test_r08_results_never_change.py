"""R08: what was awaited never changes, and writing into it touches nothing else.

Zero-copy is asked for (`session.request()`): its memory is handed to nobody while an array over it is alive, and
reading it through a request that was left raises.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


def filled(value: float) -> np.ndarray:
    return np.full((1, 2, 3, 4), value, np.float32)


def answer(value: float) -> np.ndarray:
    return np.float32(value) * kit.POS_WEIGHT[None]


@pytest.mark.loops
async def test_a_result_stays_as_it_was_through_200_other_calls(standing) -> None:
    async with aioascend.Session(kit.pos(), depth=2) as session, standing(session, X, X * kit.POS_WEIGHT):
        first = await session.infer(X)
        turns = asyncio.Semaphore(8)

        async def other(value: int) -> None:
            async with turns:
                np.testing.assert_array_equal((await session.infer(filled(value)))[0], answer(value))

        await asyncio.gather(*(other(value) for value in range(200)))
        np.testing.assert_array_equal(first[0], X * kit.POS_WEIGHT)
        first[0][:] = -1
        np.testing.assert_array_equal((await session.infer(X))[0], X * kit.POS_WEIGHT)
        assert (first[0] == -1).all()


async def test_a_thousand_results_are_kept_alive_and_outlive_the_session(standing) -> None:
    async with aioascend.Session(kit.pos()) as session, standing(session, X, X * kit.POS_WEIGHT):
        kept = [(await session.infer(filled(value)))[0] for value in range(1000)]
    for value, result in enumerate(kept):
        np.testing.assert_array_equal(result, answer(value))
    assert all(result.flags.owndata and result.flags.writeable for result in kept)


async def test_results_of_the_size_that_a_worker_copies_are_owned_too() -> None:
    shape = (1 << 19,)  # 2 MiB
    async with aioascend.Session(kit.identity(1, shape), depth=2) as session:
        kept = [(await session.infer(np.full(shape, value, np.float32)))[0] for value in range(12)]
        await asyncio.gather(*(session.infer(np.full(shape, -1, np.float32)) for _ in range(8)))
        assert [(result == value).all() for value, result in enumerate(kept)] == [True] * 12


async def test_zero_copy_memory_is_nobody_elses_while_it_is_seen_and_stale_afterwards(standing) -> None:
    async with aioascend.Session(kit.pos(), depth=1) as session, standing(session, X, X * kit.POS_WEIGHT):
        async with session.request() as request:
            inputs = request.inputs
            view = inputs["x"]
            view[:] = 7
            outputs = await request.run()
        for value in range(20):
            async with session.request() as other:
                other.inputs["x"][:] = value
                np.testing.assert_array_equal((await other.run())[0], answer(value))
        assert (view == 7).all()
        np.testing.assert_array_equal(outputs[0], answer(7))
        with pytest.raises(aioascend.StaleLease):
            inputs["x"]
        with pytest.raises(aioascend.StaleLease):
            _ = request.inputs
        with pytest.raises(aioascend.StaleLease):
            await request.run()
        del view
