"""Limits of time: told about when they pass, whatever the device is doing, and kept from the device where they can."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.memory.copying import copy_array
from aioascend.runtime import pipeline
from aioascend.runtime.ports import current_port
from aioascend.runtime.request import Request
from aioascend.waiting import run_request
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")

EYE = np.eye(500, dtype=np.float32)


def four(value: float) -> np.ndarray:
    return np.full(4, value, np.float32)


@pytest.fixture
def executes(emulator: Emulator) -> list[float]:
    """The time of every run that reached the device."""
    times: list[float] = []
    call = emulator.acl.mdl.execute_async

    def counted(*args: Any) -> Any:
        times.append(time.monotonic())
        return call(*args)

    emulator.acl.mdl.execute_async = counted
    return times


async def test_who_is_too_late_is_kept_from_the_device_even_if_its_loop_stands_still(executes: list[float]) -> None:
    async with aioascend.Session(kit.slow(30, 500), depth=1) as session:
        first = asyncio.ensure_future(session.infer(EYE))
        await eventually(lambda: session.statistics().running == 1)
        late = [asyncio.ensure_future(session.infer(EYE, timeout=0.001)) for _ in range(5)]
        await asyncio.sleep(0)
        deadline = time.monotonic() + 20
        while session.statistics().running or session.statistics().draining:  # blocks this loop, as users' code may
            assert time.monotonic() < deadline
            time.sleep(0.001)  # noqa: ASYNC251
        await first
        for result in await asyncio.gather(*late, return_exceptions=True):
            assert isinstance(result, aioascend.DeadlineExceeded)
        assert len(executes) == 1
        assert session.statistics().expired == 5


async def test_who_is_too_late_in_the_middle_of_its_copy_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 1 << 19  # copied on the worker
    copying, go_on = threading.Event(), threading.Event()

    def slow_copy(view: np.ndarray, array: np.ndarray, stop: Callable[[], bool]) -> bool:
        copying.set()
        assert go_on.wait(10)
        return copy_array(view, array, stop)

    async with aioascend.Session(kit.identity(TensorProto.FLOAT, (n,)), depth=1) as session:
        path = session._usable()
        launched: list[Request] = []
        launch = path.lanes[0].launch
        path.lanes[0].launch = lambda one, **how: (launched.append(one), launch(one, **how))  # type: ignore[method-assign]
        monkeypatch.setattr(pipeline, "copy_array", slow_copy)
        late = Request([np.ones(n, np.float32)], patient=False, timeout=0.3)
        path.submit(late)  # by nobody who would notice that its time is up
        await eventually(copying.is_set)
        await asyncio.sleep(0.35)
        other = asyncio.ensure_future(session.infer(np.ones(n, np.float32)))
        await eventually(lambda: late.abandoned)
        go_on.set()
        assert ((await other)[0] == 1).all()
        assert launched != []
        assert late not in launched
        with pytest.raises(aioascend.DeadlineExceeded, match=r"within 0\.3 s"):
            late.result()
        assert session.statistics().expired == 1


async def test_a_limit_that_is_not_reached_leaves_no_timer_behind() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        loop, port = current_port()

        def timers() -> list[asyncio.TimerHandle]:
            """Those of limits: where turns come late the port asks for one ahead, by a timer of a millisecond."""
            scheduled = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
            return [timer for timer in scheduled if timer._callback == port._expire]  # type: ignore[attr-defined]

        for _ in range(3):
            calls = [asyncio.ensure_future(session.infer(four(1), timeout=3600 - number)) for number in range(200)]
            await asyncio.sleep(0)
            assert len(timers()) == 1  # for all of them
            await asyncio.gather(*calls)
            assert timers() == []
            assert len(port._deadlines._heap) == 0
        assert len(session._usable().admission._deadlines._heap) == 0


@pytest.mark.emulated(profile=Profile(compute_default=0.6))
async def test_an_earlier_limit_overtakes_a_later_one() -> None:
    async with aioascend.Session(kit.add(1), depth=1) as session:
        ended: list[float] = []

        async def limited(limit: float) -> None:
            with pytest.raises(aioascend.DeadlineExceeded):
                await session.infer(four(1), timeout=limit)
            ended.append(limit)

        running = asyncio.ensure_future(session.infer(four(1)))
        await asyncio.gather(*(limited(limit) for limit in (0.15, 0.02, 0.2, 0.1)))
        assert ended == [0.02, 0.1, 0.15, 0.2]
        await running


async def test_a_cancel_while_a_timeout_is_being_cleaned_up_is_not_lost() -> None:
    """The copy of a large array has to stop first; who is cancelled meanwhile ends as cancelled."""
    async with aioascend.Session(kit.add(1)) as session:
        path = session._usable()
        request = Request([four(1)], patient=False, timeout=0.01)
        path.submit = lambda _: request.claim()  # type: ignore[method-assign]  # a copy that takes its time
        task = asyncio.ensure_future(run_request(path, request))
        await eventually(lambda: request.abandoned)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        request.take(lambda port: port.wake())
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_requests_whose_time_is_up_when_they_come_are_counted_with_the_expired() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        for timeout in (0, -1, float("-inf")):
            with pytest.raises(aioascend.DeadlineExceeded):
                await session.infer(four(1), timeout=timeout)
            async with session.request() as request:
                with pytest.raises(aioascend.DeadlineExceeded):
                    await request.run(timeout=timeout)
        await eventually(lambda: session.statistics().expired == 6)
        assert session.statistics().completed == 0


@pytest.mark.parametrize("timeout", ["soon", True, float("nan"), [1], np.timedelta64(1, "s"), np.complex64(1)])
async def test_what_is_no_limit_is_refused(timeout: Any) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        with pytest.raises(aioascend.InvalidInput, match="timeout: wanted seconds as a number or None"):
            await session.infer(four(1), timeout=timeout)
        assert (await session.infer(four(1), timeout=float("inf")))[0][0] == 2
