"""Who goes first, who is refused, and what a session tells about it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.runtime.request import Request
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")

EYE = np.eye(300, dtype=np.float32)


class Gate:
    """Holds the device thread, so that everything that is asked for meanwhile is decided at once."""

    def __init__(self, session: aioascend.Session) -> None:
        self.pipeline = session._usable()
        self.launched: list[tuple[int, int]] = []  # priority and number of every request, in the order of launch
        self.asked = 0
        self._open = threading.Event()
        lane = self.pipeline.lanes[0]
        launch, submit = lane.launch, self.pipeline.submit

        def noting_launch(request: Request, **how: Any) -> None:
            self.launched.append((request.priority, request.number))
            launch(request, **how)

        def noting_submit(request: Request) -> None:
            submit(request)
            self.asked += 1

        lane.launch = noting_launch  # type: ignore[method-assign]
        self.pipeline.submit = noting_submit  # type: ignore[method-assign]

    def close(self) -> None:
        entered = threading.Event()

        def wait(_: None) -> None:
            entered.set()
            self._open.wait(30)

        self.pipeline._core.post(wait, None)
        assert entered.wait(10)

    def open(self) -> None:
        self._open.set()


@pytest.mark.loops
async def test_the_smaller_priority_goes_first_through_every_door() -> None:
    x = np.zeros(4, np.float32)
    async with aioascend.Session(kit.add(1), depth=1) as session, contextlib.AsyncExitStack() as stack:
        entered = [await stack.enter_async_context(session.request()) for _ in range(3)]

        async def submit(priority: int) -> None:
            await (await session.submit(x, priority=priority))

        async def map_one(priority: int) -> None:
            assert len([None async for _ in session.map([x], priority=priority)]) == 1

        gate = Gate(session)
        gate.close()
        calls: list[asyncio.Future[Any]] = []
        for priority in (1, -1, 0):
            for call in (
                session.infer(x, priority=priority),
                submit(priority),
                asyncio.to_thread(session.infer_sync, x, priority=priority),
                map_one(priority),
                entered.pop().run(priority=priority),
                session.infer(x, priority=priority),
            ):
                calls.append(asyncio.ensure_future(call))
                await eventually(lambda: gate.asked == len(calls))
        gate.open()
        await asyncio.gather(*calls)
        numbers = [number for priority, number in gate.launched if priority == 1]
        assert numbers == sorted(numbers)  # the order within a priority
        # 8 turns: the first 7 go by priority, the next to whoever has waited longest.
        assert [priority for priority, _ in gate.launched] == [-1] * 6 + [0] + [1] + [0] * 5 + [1] * 5


async def test_a_flood_of_urgent_requests_keeps_nobody_waiting_for_ever() -> None:
    async with aioascend.Session(kit.slow(4, 300), depth=1) as session:
        gate = Gate(session)
        gate.close()
        patient = asyncio.ensure_future(session.infer(EYE, priority=100))
        await eventually(lambda: gate.asked == 1)

        async def flood() -> None:
            while not patient.done():
                await session.infer(EYE, priority=-100)

        floods = [asyncio.ensure_future(flood()) for _ in range(30)]
        await eventually(lambda: gate.asked == 31)
        gate.open()
        await patient
        assert [priority for priority, _ in gate.launched].index(100) == 7
        await asyncio.gather(*floods)


async def test_waiting_memory_is_bounded() -> None:
    async with aioascend.Session(kit.slow(20, 300), depth=1, max_waiting_bytes=3 * EYE.nbytes) as session:
        calls = [asyncio.ensure_future(session.infer(EYE)) for _ in range(10)]
        await eventually(lambda: session.statistics().waiting == 3)
        assert session.statistics().waiting_bytes == 3 * EYE.nbytes
        ticket = asyncio.ensure_future(session.submit(EYE))
        results = await asyncio.gather(*calls, return_exceptions=True)
        refused = [result for result in results if isinstance(result, aioascend.Overloaded)]
        assert 4 <= len(refused) <= 5  # two buffers, three that wait, and the place if it was taken in time
        assert f"max_waiting_bytes={3 * EYE.nbytes}" in str(refused[0])
        await (await ticket)
        assert session.statistics().refused == len(refused)


async def test_the_retry_estimate_grows_with_what_stands_before() -> None:
    async with aioascend.Session(kit.slow(20, 300), depth=1, max_waiting=6) as session:
        for _ in range(3):
            await session.infer(EYE)
        gate = Gate(session)
        gate.close()
        calls = [asyncio.ensure_future(session.infer(EYE, priority=5)) for _ in range(6 + 2)]
        refused = [asyncio.ensure_future(session.infer(EYE, priority=priority)) for priority in (-1, 5)]
        await eventually(lambda: gate.asked == 10)
        gate.open()
        first, last = await asyncio.gather(*refused, return_exceptions=True)
        assert isinstance(first, aioascend.Overloaded)
        assert isinstance(last, aioascend.Overloaded)
        assert "6 requests wait (max_waiting=6)" in str(last)
        assert first.retry_after is not None
        assert last.retry_after == pytest.approx(8 * first.retry_after)
        await asyncio.gather(*calls)


async def test_a_session_tells_what_became_of_every_request() -> None:
    async with aioascend.Session(kit.slow(20, 300), depth=1, max_waiting=4) as session:
        assert repr(session).endswith("open, 0/1 running, 0 waiting, 0 completed>")
        gate = Gate(session)
        gate.close()
        first = [asyncio.ensure_future(session.infer(EYE)) for _ in range(2)]
        late = [asyncio.ensure_future(session.infer(EYE, timeout=0.001)) for _ in range(2)]
        given_up = [asyncio.ensure_future(session.infer(EYE)) for _ in range(2)]
        many = [asyncio.ensure_future(session.infer(EYE)) for _ in range(6)]
        await eventually(lambda: gate.asked == 12)
        for result in await asyncio.gather(*late, return_exceptions=True):
            assert isinstance(result, aioascend.DeadlineExceeded)
        for call in given_up:
            call.cancel()
        await asyncio.sleep(0)
        gate.open()
        results = await asyncio.gather(*first, *many, return_exceptions=True)
        assert [isinstance(result, aioascend.Overloaded) for result in results] == [False] * 6 + [True] * 2
        await eventually(lambda: session.statistics().draining == 0)
        now = session.statistics()
        assert (now.completed, now.cancelled, now.expired, now.refused) == (6, 2, 2, 2)
        assert repr(session).endswith("0 waiting, 6 completed, 2 cancelled, 2 expired, 2 refused>")


@pytest.mark.parametrize("priority", [101, -101, 1.5, "high", None, True])
async def test_what_is_no_priority_is_refused(priority: Any) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        x = np.zeros(4, np.float32)
        for call in (session.infer, session.submit):
            with pytest.raises(aioascend.InvalidInput, match="priority: wanted a whole number from -100 to 100"):
                await call(x, priority=priority)
        with pytest.raises(aioascend.InvalidInput, match="the smaller the more urgent"):
            session.map([x], priority=priority)
