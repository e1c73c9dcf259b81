"""A thread of ours that is told to end costs what it was doing, and goes on: nobody waits for ever."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from aioascend.runtime.worker import Worker, _Call
from tests import kit
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("emulator", "probed_soon"), pytest.mark.logs_errors]


def throw(thread: threading.Thread, kind: type[BaseException] = SystemExit) -> None:
    """Raise an exception in another thread, as programs do that end all threads."""
    assert thread.ident is not None
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(kind)) == 1


def ours(part: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"aioascend-{part}")]


EYE = np.eye(700, dtype=np.float32)


@pytest.mark.parametrize(
    "way,part", [("callback", part) for part in ("device", "control", "copy", "report")] + [("event", "events")]
)
async def test_a_thread_that_is_told_to_end_at_any_moment_leaves_nobody_waiting(
    way: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    async with aioascend.Session(kit.slow(4), depth=2) as session:
        await session.infer(EYE)
        with anyio.fail_after(60):
            for delay in (0, 0.005, 0.05):
                tasks = [asyncio.ensure_future(session.infer(i * EYE)) for i in range(8)]
                await asyncio.sleep(delay)
                for thread in ours(part):
                    throw(thread)
                results = await asyncio.gather(*tasks, return_exceptions=True)
                for i, result in enumerate(results):
                    if isinstance(result, BaseException):
                        assert isinstance(result, aioascend.AioascendError), result
                    else:
                        np.testing.assert_array_equal(result[0], i * EYE)
                await eventually(lambda: session.ready, seconds=20)
        np.testing.assert_array_equal((await session.infer(EYE))[0], EYE)


@pytest.mark.parametrize(
    "function",
    ["memcpy_async", "execute_async", "record_event", "launch_callback", "stream_query", "process_report"],
)
async def test_a_call_that_raises_system_exit_ends_no_thread(emulator: Emulator, function: str) -> None:
    module: Any = emulator.acl.mdl if hasattr(emulator.acl.mdl, function) else emulator.acl.rt
    call: Callable[..., Any] = getattr(module, function)
    left = 0

    def call_or_exit(*args: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise SystemExit
        return call(*args)

    async with aioascend.Session(kit.add(1)) as session:
        setattr(module, function, call_or_exit)
        for nth in (1, 2, 5):
            left = nth
            with anyio.fail_after(20):
                results = await asyncio.gather(
                    *(session.infer(np.full(4, i, np.float32)) for i in range(8)), return_exceptions=True
                )
            for i, result in enumerate(results):
                if isinstance(result, BaseException):
                    assert isinstance(result, aioascend.AioascendError), result
                else:
                    assert result[0].tolist() == [i + 1] * 4
            await eventually(lambda: session.ready)
        left = 0
        assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1


def test_a_worker_that_is_interrupted_fails_the_call_it_was_at_and_no_other() -> None:
    worker = Worker("aioascend-test")
    started, go = threading.Event(), threading.Event()

    def hold() -> int:
        started.set()
        while not go.wait(0.01):
            pass
        return 1

    first = worker.submit(hold)
    others = [worker.submit(lambda i=i: i) for i in range(3)]  # type: ignore[misc]
    started.wait(5)
    (thread,) = ours("test")
    throw(thread)
    with pytest.raises(SystemExit):
        first.result(5)
    go.set()
    assert [other.result(5) for other in others] == [0, 1, 2]
    throw(thread)  # while it waits for calls
    time.sleep(0.05)
    assert worker.submit(lambda: 7).result(5) == 7
    worker.stop()
    worker.stop()
    with pytest.raises(RuntimeError, match="was stopped"):
        worker.submit(print)


def test_an_abandoned_worker_drops_what_has_not_begun() -> None:
    worker = Worker("aioascend-test")
    started, go = threading.Event(), threading.Event()

    def hold() -> bool:
        started.set()
        return go.wait(10)

    first = worker.submit(hold)
    assert started.wait(5)
    dropped = [worker.submit(lambda: 7) for _ in range(3)]
    worker.abandon()
    with pytest.raises(RuntimeError, match="was stopped"):
        worker.submit(print)
    go.set()
    worker.join(5)
    assert first.result(0)
    assert not any(call.done() for call in dropped)
    assert not ours("test")


def test_a_call_that_is_interrupted_before_it_is_over_is_failed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interruption may come before its function or after its outcome."""
    run = _Call.run
    where = ["before", "after"]

    def interrupted(call: _Call) -> None:
        if not where:
            run(call)
        elif where.pop(0) == "before":
            call.begun = True
            raise SystemExit
        else:
            run(call)
            raise SystemExit

    monkeypatch.setattr(_Call, "run", interrupted)
    worker = Worker("aioascend-test")
    first, second, third = (worker.submit(lambda i=i: i) for i in range(3))  # type: ignore[misc]
    with pytest.raises(SystemExit):
        first.result(5)
    assert (second.result(5), third.result(5)) == (1, 2)
    worker.stop()


def test_what_a_call_raises_is_its_waiters_alone(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("aioascend-test")
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda: 1 / 0).result(5)
    assert worker.submit(lambda: 7).result(5) == 7
    assert not caplog.records  # it has interrupted nothing
    worker.stop()
