"""How the end of work is learned: callbacks on a report thread, and events that a thread waits for."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import numpy as np

from .bench import Bench, code_text
from .checks import Group, Seen

__all__ = ["COMPLETION"]

COMPLETION = Group("completion")

_NO_BLOCK, _BLOCK = 0, 1
_SOON = 3.0


def _wait(what: threading.Event) -> bool:
    return what.wait(_SOON)


@COMPLETION.check(
    "callbacks of a stream come in order, with one argument, on the subscribed thread", "§9", "all 50, so"
)
def _callbacks(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    report = bench.subscribed(stream)
    got: list[tuple[int, int]] = []
    done = threading.Event()

    def note(*arguments: int) -> None:
        got.append((arguments[0] if len(arguments) == 1 else -1, threading.get_ident()))
        if len(got) == 50:
            done.set()

    for number in range(50):
        ret = acl.rt.launch_callback(note, number, _NO_BLOCK, stream)
        bench.good(ret, "acl.rt.launch_callback")
    if not _wait(done):
        return f"{len(got)} of 50"
    if [number for number, _ in got] != list(range(50)):
        return f"in another order or form: {got[:5]}"
    return "all 50, so" if {thread for _, thread in got} == {report.ident} else "on another thread"


@COMPLETION.check("a callback waits for the work before it", "§9", "after it")
def _callback_after_work(bench: Bench) -> Seen:
    acl = bench.acl
    stream = bench.stream()
    bench.subscribed(stream)
    done = threading.Event()
    bench.busy(stream, 0.15)
    ret = acl.rt.launch_callback(lambda _: done.set(), None, _NO_BLOCK, stream)
    bench.good(ret, "acl.rt.launch_callback")
    status, ret = acl.rt.stream_query(stream)
    bench.good(ret, "acl.rt.stream_query")
    early = done.is_set() and status == 1
    _wait(done)
    return Seen("before it" if early else "after it" if done.is_set() else "never")


@COMPLETION.check(
    "a callback that does not block is no part of synchronize_stream's wait", "§9, §22", "it returns before"
)
def _no_block(bench: Bench) -> str:
    return _synchronised_while(bench, _NO_BLOCK)


@COMPLETION.check("a callback that blocks is part of synchronize_stream's wait", "§9, §22", "it returns after")
def _block(bench: Bench) -> str:
    return _synchronised_while(bench, _BLOCK)


def _synchronised_while(bench: Bench, kind: int) -> str:
    acl = bench.acl
    stream = bench.stream()
    bench.subscribed(stream)
    begun, ended = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        begun.set()
        time.sleep(0.4)
        ended.set()

    ret = acl.rt.launch_callback(slow, None, kind, stream)
    bench.good(ret, "acl.rt.launch_callback")
    begun.wait(_SOON)
    ret = acl.rt.synchronize_stream(stream)
    after = ended.is_set()
    bench.good(ret, "acl.rt.synchronize_stream")
    ended.wait(_SOON)
    return "it returns after" if after else "it returns before"


@COMPLETION.check("an exception out of a callback comes out of process_report as SystemError", "§9, §19", "SystemError")
def _exception(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    report = bench.subscribed(stream)

    def broken(_: object) -> None:
        raise ValueError("raised to see what becomes of it")

    ret = acl.rt.launch_callback(broken, None, _NO_BLOCK, stream)
    bench.good(ret, "acl.rt.launch_callback")
    limit = time.monotonic() + _SOON
    while not report.raised and time.monotonic() < limit:
        time.sleep(0.01)
    return type(report.raised[0]).__name__ if report.raised else "nothing came out"


@COMPLETION.check("callbacks go on after one that raised", "§9", "they go on")
def _after_exception(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    bench.subscribed(stream)
    done = threading.Event()

    def broken(_: object) -> None:
        raise ValueError("raised to see what becomes of it")

    ret = acl.rt.launch_callback(broken, None, _NO_BLOCK, stream)
    bench.good(ret, "acl.rt.launch_callback")
    ret = acl.rt.launch_callback(lambda _: done.set(), None, _NO_BLOCK, stream)
    bench.good(ret, "acl.rt.launch_callback")
    return "they go on" if _wait(done) else "no more come"


@COMPLETION.check("an idle process_report ends by its timeout", "§9", "507012")
def _idle(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    ident = threading.get_ident()
    ret = acl.rt.subscribe_report(ident, stream)
    bench.good(ret, "acl.rt.subscribe_report")
    ret = acl.rt.process_report(100)
    acl.rt.unsubscribe_report(ident, stream)
    return code_text(ret)


@COMPLETION.check(
    "an event is waited for on another thread than the one that recorded it", "§7, §17", "done after the work"
)
def _event(bench: Bench) -> str:
    acl = bench.acl
    stream, event = bench.stream(), bench.event(bench.flavour, 3)
    seen: list[int] = []
    bench.busy(stream, 0.15)
    ret = acl.rt.record_event(event, stream)
    bench.good(ret, "acl.rt.record_event")

    def wait() -> None:
        acl.rt.set_context(bench.context)
        ret = acl.rt.synchronize_event_with_timeout(event, 3000)
        status, _ = acl.rt.stream_query(stream)
        seen.extend((ret, status))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(_SOON * 2)
    return "done after the work" if seen == [0, 0] else f"code and stream status: {seen}"


@COMPLETION.check("a wait for an event that takes too long ends by its timeout", "§7", "507047")
def _event_timeout(bench: Bench) -> str:
    acl = bench.acl
    stream, event = bench.stream(), bench.event(bench.flavour, 3)
    bench.busy(stream, 0.3)
    ret = acl.rt.record_event(event, stream)
    bench.good(ret, "acl.rt.record_event")
    ret = acl.rt.synchronize_event_with_timeout(event, 20)
    return code_text(ret)


@COMPLETION.check("a wait for a stream that takes too long ends by its timeout", "§6", "507046")
def _stream_timeout(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    bench.busy(stream, 0.3)
    ret = acl.rt.synchronize_stream_with_timeout(stream, 20)
    return code_text(ret)


@COMPLETION.check("a stream that stands still takes 768 tasks", "§3", "it does", seconds=8.0)
def _depth(bench: Bench) -> str:
    """Were its queue full, a submission would wait for ever: the stream waits for what comes after all of them."""
    acl = bench.acl
    stream, other = bench.stream(), bench.stream()
    gate = bench.event("legacy", 1)
    ret = acl.rt.stream_wait_event(stream, gate)
    bench.good(ret, "acl.rt.stream_wait_event")
    marks = [bench.event("plain") for _ in range(8)]
    for number in range(768):
        ret = acl.rt.record_event(marks[number % 8], stream)
        bench.good(ret, f"acl.rt.record_event, task {number} of a stream that waits,")
    status, _ = acl.rt.stream_query(stream)
    ret = acl.rt.record_event(gate, other)
    bench.good(ret, "acl.rt.record_event")
    ret = acl.rt.synchronize_stream_with_timeout(stream, 5000)
    bench.good(ret, "acl.rt.synchronize_stream_with_timeout")
    return "it does" if status == 1 else "it did not stand still"


def _through_aioascend(bench: Bench, way: str) -> str:
    """A copy there and back through `aioascend.Device`, as a session makes them."""
    import aioascend

    async def there_and_back() -> bool:
        async with aioascend.Device(bench.device) as device:
            stream = await device.create_stream()
            source, target = await device.malloc_host(4096), await device.malloc_host(4096)
            memory = await device.malloc(4096)
            source.array[:] = np.arange(4096) % 251
            await stream.copy(memory, source)
            await stream.copy(target, memory)
            await stream.synchronize()
            return bool((target.array == source.array).all())

    os.environ["AIOASCEND_COMPLETION"] = way
    return "the right bytes" if asyncio.run(there_and_back()) else "wrong bytes"


@COMPLETION.check("a copy there and back is awaited, by callbacks", "§17", "the right bytes", seconds=15.0)
def _device_by_callbacks(bench: Bench) -> str:
    return _through_aioascend(bench, "callback")


@COMPLETION.check("a copy there and back is awaited, by events", "§17", "the right bytes", seconds=15.0)
def _device_by_events(bench: Bench) -> str:
    return _through_aioascend(bench, "event")
