"""Signals across threads and loops, and one wake-up a loop and burst."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import weakref
from concurrent.futures import Future
from typing import Any

import anyio
import pytest

from aioascend.runtime import signal as signal_module
from aioascend.runtime.background import done_within
from aioascend.runtime.ports import LoopPort, current_port
from aioascend.runtime.signal import Signal


async def test_a_signal_set_before_during_and_after_the_wait() -> None:
    for delay in (0, 0.001, 0.01):
        signal = Signal()
        thread = threading.Timer(delay, lambda s=signal: s.set(lambda port: port.wake()))
        thread.start()
        with anyio.fail_after(5):
            await asyncio.gather(*(signal.wait() for _ in range(10)))
        assert signal
        await signal.wait()
        thread.join()


async def test_no_wake_up_is_lost_between_threads() -> None:
    for _ in range(300):
        signal = Signal()
        setter = threading.Thread(target=lambda s=signal: s.set(lambda port: port.wake()))
        setter.start()
        with anyio.fail_after(5):
            await signal.wait()
        setter.join()


async def test_a_wait_ends_at_its_deadline_and_when_it_is_cancelled_and_leaves_nothing_behind() -> None:
    signal = Signal()
    _, port = current_port()
    deadline = time.monotonic() + 0.02
    await signal.wait(deadline)
    assert not signal
    assert time.monotonic() > deadline - 0.01
    for limit in (None, time.monotonic() + 3600):
        task = asyncio.create_task(signal.wait(limit))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not signal.wait_blocking(0.001)
    assert signal._waiters == {}
    assert port._timer is None
    signal.set(lambda port: port.wake())
    await signal.wait()


async def test_waits_with_many_deadlines_end_in_their_order_with_one_timer() -> None:
    signal = Signal()
    ended: list[int] = []
    began = time.monotonic()

    async def wait(number: int) -> None:
        await signal.wait(began + number / 100)
        ended.append(number)

    _, port = current_port()
    tasks = [asyncio.create_task(wait(number)) for number in (3, 1, 5, 2, 4)]
    await asyncio.sleep(0)
    assert len(port._deadlines) == 5
    await asyncio.gather(*tasks)
    assert ended == [1, 2, 3, 4, 5]
    assert port._timer is None


def test_a_thread_waits_for_a_signal() -> None:
    signal = Signal()
    assert not signal.wait_blocking(0.001)
    threading.Timer(0.01, lambda: signal.set(lambda port: port.wake())).start()
    assert signal.wait_blocking(5)
    assert signal.wait_blocking()


async def test_a_burst_of_notes_costs_one_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, port = current_port()
    assert current_port() == (loop, port)
    wakes = 0
    schedule = loop.call_soon_threadsafe

    def counted(callback: Any, *args: Any) -> Any:
        nonlocal wakes
        wakes += 1
        return schedule(callback, *args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    futures = [loop.create_future() for _ in range(100)]
    futures[7].cancel()  # its waiter has gone
    for future in futures:
        port.put(future)
        port.wake()
    assert sum(future.done() for future in futures) == 1
    await asyncio.sleep(0)
    assert all(future.done() for future in futures)
    assert wakes == 1


def test_a_closed_loop_swallows_its_notes_and_harms_nobody() -> None:
    loop = asyncio.new_event_loop()
    port = LoopPort(loop)
    future = loop.create_future()
    loop.close()
    port.put(future)
    port.wake()
    port.wake()
    assert not port._over
    del loop
    port.put(future)
    port.wake()
    assert not port._over
    assert not future.done()


def test_a_loop_that_is_gone_altogether_is_told_nothing() -> None:
    loop = asyncio.new_event_loop()
    port, gone = LoopPort(loop), weakref.ref(loop)
    loop.close()
    del loop
    gc.collect()
    assert gone() is None
    port.put(object())
    port.wake()
    assert not port._over


def test_two_loops_one_after_the_other_on_one_thread_have_a_port_each() -> None:
    async def port() -> LoopPort:
        return current_port()[1]

    assert asyncio.run(port()) is not asyncio.run(port())


async def test_a_future_is_waited_for_as_long_as_was_said() -> None:
    future: Future[int] = Future()
    started = time.monotonic()
    assert not await done_within(future, 0.05)
    assert time.monotonic() - started >= 0.05
    threading.Timer(0.02, future.set_result, (7,)).start()
    assert await done_within(future, 20)
    assert await done_within(future, None)
    failed: Future[int] = Future()
    failed.set_exception(LookupError("its own"))
    with pytest.raises(LookupError, match="its own"):
        await done_within(failed, 1)


async def test_the_loop_of_a_signal_s_first_waiter_can_be_roused_before_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wakes = []
    monkeypatch.setattr(signal_module, "_PROCESSORS", 2)
    monkeypatch.setattr(LoopPort, "wake", lambda self: wakes.append(self))
    signal = Signal()
    signal.rouse()  # made for nobody
    loop, port = current_port()
    future = loop.create_future()
    signal.expect(future, port)
    signal.rouse()
    assert wakes == [port]
    assert not signal.is_set
    assert not future.done()
    monkeypatch.setattr(signal_module, "_PROCESSORS", 1)
    signal.rouse()
    monkeypatch.setattr(signal_module, "_PROCESSORS", 2)
    signal.leave(future)
    signal.rouse()
    assert wakes == [port]


def test_a_waiter_that_leaves_while_the_signal_is_set_is_told_nothing() -> None:
    class Leaving(dict[Any, Any]):
        def popitem(self) -> Any:
            self.clear()  # by its own thread, in this moment
            return super().popitem()

    signal, told = Signal(), []
    signal._waiters = Leaving({"somebody": None})
    signal.set(told.append)
    assert signal
    assert told == []


async def test_a_signal_that_is_set_while_its_waiter_registers_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    signal = Signal()

    def port_at_last_moment() -> Any:
        signal.set(lambda port: port.wake())  # nobody is registered yet
        return current_port()

    monkeypatch.setattr("aioascend.runtime.signal.current_port", port_at_last_moment)
    with anyio.fail_after(5):
        await signal.wait()
    assert signal._waiters == {}


class Hit(BaseException):
    """What a signal handler raises, in the middle of whatever was being done."""


def test_a_thread_that_is_hit_anywhere_in_its_wait_is_told_so_and_can_wait_again() -> None:
    def hit_at(number: int) -> bool:
        """Whether the wait has so many lines."""
        lines = 0

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal lines
            if event == "line":
                lines += 1
                if lines == number:
                    raise Hit
            return trace

        signal, before = Signal(), sys.gettrace()
        sys.settrace(trace)
        try:
            signal.wait_blocking(0.001)
        except Hit:
            return True
        finally:
            sys.settrace(before)
            signal.set(lambda port: port.wake())
            assert signal.wait_blocking(5)
        return False

    number = 1
    while hit_at(number):
        number += 1
    assert number > 5
