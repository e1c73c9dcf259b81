"""Cancelling and timing out: the caller is free at once, the memory stays the device's until it is done."""

from __future__ import annotations

import asyncio
import random
import time

import anyio
import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

EYE = np.eye(700, dtype=np.float32)


async def test_cancels_at_random_moments_leave_every_other_answer_right() -> None:
    random.seed(7)
    async with aioascend.Session(kit.add(1), depth=2) as session:

        async def one(value: int) -> None:
            task = asyncio.create_task(session.infer(np.full(4, value, np.float32)))
            await asyncio.sleep(random.random() * 0.004)
            if random.random() < 0.5:
                task.cancel()
            try:
                assert (await task)[0].tolist() == [value + 1] * 4
            except asyncio.CancelledError:
                pass

        for start in range(0, 400, 20):
            await asyncio.gather(*(one(value) for value in range(start, start + 20)))
        assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1
        now = session.statistics()
        assert (now.waiting, now.staging, now.running) == (0, 0, 0)


async def test_a_timeout_is_prompt_and_frees_the_queue() -> None:
    async with aioascend.Session(kit.slow(60), depth=1) as session:
        started = time.monotonic()
        running = asyncio.create_task(session.infer(EYE))
        results = await asyncio.gather(*(session.infer(EYE, timeout=0.05) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(result, aioascend.DeadlineExceeded) for result in results)
        assert all(isinstance(result, TimeoutError) for result in results)
        assert time.monotonic() - started < 2
        await running
        with pytest.raises(aioascend.DeadlineExceeded, match="not finished within 0 s"):
            await session.infer(EYE, timeout=0)
        assert session.statistics().completed == 1


async def test_the_usual_ways_to_limit_a_wait_work() -> None:
    async with aioascend.Session(kit.slow(60), depth=1) as session:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.infer(EYE), 0.05)
        with anyio.move_on_after(0.05) as scope:
            await session.infer(EYE)
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError):
            with anyio.fail_after(0.05):
                await session.infer(EYE)
        np.testing.assert_array_equal((await session.infer(EYE, timeout=60))[0], EYE)


async def test_an_infer_sync_that_times_out_gives_up_its_request() -> None:
    async with aioascend.Session(kit.slow(60), depth=1) as session:

        def limited() -> None:
            with pytest.raises(aioascend.DeadlineExceeded):
                session.infer_sync(EYE, timeout=0.02)
            with pytest.raises(aioascend.DeadlineExceeded):
                session.infer_sync(EYE, timeout=-1)

        await asyncio.to_thread(limited)
        np.testing.assert_array_equal((await session.infer(EYE))[0], EYE)
        assert session.statistics().expired == 1
