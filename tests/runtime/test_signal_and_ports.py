"""Signals across threads and loops, and one wake-up a loop and burst."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import pytest

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


async def test_a_wait_ends_at_its_timeout_and_when_it_is_cancelled() -> None:
    signal = Signal()
    await signal.wait(0.01)
    assert not signal
    task = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    signal.set(lambda port: port.wake())
    await signal.wait()


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
    seen: list[int] = []
    for number in range(100):
        port.put(seen.append, number)
        port.wake()
    assert seen == []
    await asyncio.sleep(0)
    assert seen == list(range(100))
    assert wakes == 1


def test_a_closed_loop_swallows_its_notes_and_harms_nobody() -> None:
    loop = asyncio.new_event_loop()
    port = LoopPort(loop)
    loop.close()
    port.put(print, "never")
    port.wake()
    port.wake()
    del loop
    port.put(print, "never")
    port.wake()
