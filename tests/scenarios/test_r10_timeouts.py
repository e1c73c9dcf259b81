"""R10: a timeout is on time, covers the time in the queue, and what timed out there never runs.

Whose run has begun keeps its place until the device is done, so that the others get right answers at full speed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from tests import kit
from tests.waiting import eventually

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


async def builtin(session: aioascend.Session, x: np.ndarray, seconds: float) -> None:
    await session.infer(x, timeout=seconds)


async def of_a_pinned_request(session: aioascend.Session, x: np.ndarray, seconds: float) -> None:
    async with session.request() as request:
        request.inputs[0][:] = x
        await request.run(timeout=seconds)


async def wait_for(session: aioascend.Session, x: np.ndarray, seconds: float) -> None:
    await asyncio.wait_for(session.infer(x), seconds)


async def fail_after(session: aioascend.Session, x: np.ndarray, seconds: float) -> None:
    with anyio.fail_after(seconds):
        await session.infer(x)


async def of_asyncio(session: aioascend.Session, x: np.ndarray, seconds: float) -> None:
    async with asyncio.timeout(seconds):  # Python 3.11
        await session.infer(x)


async def of_a_thread(session: aioascend.Session, x: np.ndarray, seconds: float) -> None:
    await asyncio.to_thread(session.infer_sync, x, timeout=seconds)


WAYS: list[Callable[[aioascend.Session, np.ndarray, float], Awaitable[None]]] = [
    builtin,
    of_a_pinned_request,
    wait_for,
    fail_after,
    of_a_thread,
]
if sys.version_info >= (3, 11):
    WAYS.append(of_asyncio)


@pytest.mark.emulated(profile=Profile(compute={"slow": 0.8}))
@pytest.mark.parametrize("way", WAYS)
async def test_a_run_that_takes_longer_times_out_on_time_and_its_neighbours_are_right(
    emulator: Emulator, standing, way: Callable[[aioascend.Session, np.ndarray, float], Awaitable[None]]
) -> None:
    async with (
        aioascend.Session(kit.named("slow"), depth=1) as slow,
        aioascend.Session(kit.pos()) as quick,
        standing(quick, X, X * kit.POS_WEIGHT),
    ):
        best = 9.0
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises((TimeoutError, asyncio.TimeoutError)):
                await way(slow, X, 0.2)
            best = min(best, time.monotonic() - started)
        assert 0.19 <= best < 0.5
        results = await asyncio.gather(*(quick.infer(X * value) for value in range(5)))
        for value, outputs in enumerate(results):
            np.testing.assert_array_equal(outputs[0], X * value * kit.POS_WEIGHT)


@pytest.mark.emulated(profile=Profile(compute={"slow": 0.4}))
async def test_what_times_out_in_the_queue_never_reaches_the_device(emulator: Emulator, standing) -> None:
    async with aioascend.Session(kit.named("slow"), depth=1) as session, standing(session, X, X * kit.POS_WEIGHT):
        before = session.statistics()
        executed = emulator.faults.fail_task("execute", 507015, nth=1 << 30)  # never strikes, but counts
        running = asyncio.create_task(session.infer(X))
        await asyncio.sleep(0.05)
        results = await asyncio.gather(*(session.infer(X, timeout=0.1) for _ in range(5)), return_exceptions=True)
        assert [type(result) for result in results] == [aioascend.DeadlineExceeded] * 5
        assert all(isinstance(result, TimeoutError) for result in results)
        await eventually(lambda: session.statistics().waiting == 0)
        await running
        assert executed.seen == 1
        with pytest.raises(aioascend.DeadlineExceeded, match="within 0"):
            await session.infer(X, timeout=0)
        with pytest.raises(aioascend.DeadlineExceeded):
            await session.infer(X, timeout=-1)
        assert executed.seen == 1
        assert session.statistics().completed == before.completed + 1


@pytest.mark.usefixtures("emulator")
@pytest.mark.emulated(profile=Profile(compute={"slow": 0.15}))
async def test_50_timeouts_in_a_row_cost_nothing_afterwards(standing) -> None:
    async with aioascend.Session(kit.named("slow"), depth=2) as session, standing(session, X, X * kit.POS_WEIGHT):
        late = 0
        for _ in range(50):
            started = time.monotonic()
            try:
                await session.infer(X, timeout=0.03)
            except aioascend.DeadlineExceeded:
                late += time.monotonic() - started > 0.5
        assert late < 5
        started = time.monotonic()
        for outputs in await asyncio.gather(*(session.infer(X) for _ in range(4))):
            np.testing.assert_array_equal(outputs[0], X * kit.POS_WEIGHT)
        busy = time.monotonic() - started
        started = time.monotonic()
        await asyncio.gather(*(session.infer(X) for _ in range(4)))
        assert busy < 4 * (time.monotonic() - started)  # the first four waited for two abandoned runs at most


@pytest.mark.usefixtures("emulator")
@pytest.mark.emulated(profile=Profile(compute={"slow": 0.5}))
async def test_a_place_is_busy_until_its_timed_out_run_has_ended() -> None:
    async with aioascend.Session(kit.named("slow"), depth=1) as session:
        with pytest.raises(aioascend.DeadlineExceeded):
            await session.infer(X, timeout=0.1)
        assert session.statistics().running == 1
        np.testing.assert_array_equal((await session.infer(X * 3))[0], X * 3 * kit.POS_WEIGHT)
        assert session.statistics().running == 0
