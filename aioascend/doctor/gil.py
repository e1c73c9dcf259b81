"""Which calls hold the GIL: on pyACL those of the reference's map, in C none."""

from __future__ import annotations

import threading
import time
from ctypes import byref, c_void_p

from .bench import Bench, ReportThread
from .checks import Group, Seen, Unavailable
from .timing import held_or_released

__all__ = ["GIL"]

GIL = Group("GIL")

_TO_DEVICE = 1
_BUSY = 0.15
_SECONDS = 10.0


@GIL.check("rt.synchronize_stream", "§3", "released", seconds=_SECONDS)
def _synchronize_stream(bench: Bench) -> Seen:
    acl = bench.acl
    stream = bench.stream()
    return held_or_released(lambda: acl.rt.synchronize_stream(stream), lambda: bench.busy(stream, _BUSY))


@GIL.check("rt.synchronize_stream_with_timeout", "§3", "released", seconds=_SECONDS)
def _synchronize_stream_with_timeout(bench: Bench) -> Seen:
    acl = bench.acl
    stream = bench.stream()
    return held_or_released(
        lambda: acl.rt.synchronize_stream_with_timeout(stream, 5000), lambda: bench.busy(stream, _BUSY)
    )


@GIL.check("rt.synchronize_device", "§3", "released", seconds=_SECONDS)
def _synchronize_device(bench: Bench) -> Seen:
    acl = bench.acl
    stream = bench.stream()
    return held_or_released(lambda: acl.rt.synchronize_device(), lambda: bench.busy(stream, _BUSY))


@GIL.check("rt.synchronize_event", "§3", "released", seconds=_SECONDS)
def _synchronize_event(bench: Bench) -> Seen:
    acl = bench.acl
    stream, event = bench.stream(), bench.event("plain")

    def prepare() -> None:
        bench.busy(stream, _BUSY)
        ret = acl.rt.record_event(event, stream)
        bench.good(ret, "acl.rt.record_event")

    return held_or_released(lambda: acl.rt.synchronize_event(event), prepare)


@GIL.check("rt.synchronize_event_with_timeout", "§3", "released", seconds=_SECONDS)
def _synchronize_event_with_timeout(bench: Bench) -> Seen:
    acl = bench.acl
    stream, event = bench.stream(), bench.event("plain")

    def prepare() -> None:
        bench.busy(stream, _BUSY)
        ret = acl.rt.record_event(event, stream)
        bench.good(ret, "acl.rt.record_event")

    return held_or_released(lambda: acl.rt.synchronize_event_with_timeout(event, 5000), prepare)


@GIL.check("rt.process_report", "§3", "released", seconds=_SECONDS)
def _process_report(bench: Bench) -> Seen:
    acl = bench.acl
    stream = bench.stream()
    ident = threading.get_ident()
    ret = acl.rt.subscribe_report(ident, stream)
    bench.good(ret, "acl.rt.subscribe_report")
    bench.later(lambda: acl.rt.unsubscribe_report(ident, stream))
    return held_or_released(lambda: acl.rt.process_report(150))


@GIL.check("util.stop_thread", "§3, §13", "released", seconds=_SECONDS)
def _stop_thread(bench: Bench) -> Seen:
    acl = bench.acl
    started: list[int] = []

    def sleep(_: object) -> None:
        time.sleep(_BUSY)

    def prepare() -> None:
        thread, ret = acl.util.start_thread(sleep, [0])
        bench.good(ret, "acl.util.start_thread")
        started.append(thread)

    return held_or_released(lambda: acl.util.stop_thread(started[-1]), prepare)


@GIL.check("rt.synchronize_device_with_timeout", "§3", "held", seconds=_SECONDS)
def _synchronize_device_with_timeout(bench: Bench) -> Seen:
    acl = bench.acl
    stream = bench.stream()
    return held_or_released(lambda: acl.rt.synchronize_device_with_timeout(5000), lambda: bench.busy(stream, _BUSY))


@GIL.check("rt.destroy_stream, which waits for the stream", "§3, §6", "held", seconds=_SECONDS)
def _destroy_stream(bench: Bench) -> Seen:
    acl = bench.acl
    streams: list[int] = []
    return held_or_released(lambda: acl.rt.destroy_stream(streams[-1]), lambda: streams.append(_busy_stream(bench)))


def _busy_stream(bench: Bench) -> int:
    acl = bench.acl
    stream, ret = acl.rt.create_stream()
    bench.good(ret, "acl.rt.create_stream")
    bench.busy(stream, _BUSY)
    return int(stream)


@GIL.check(
    "rt.memcpy_async from memory that is not pinned, which waits for the stream", "§3, §8", "held", seconds=_SECONDS
)
def _pageable(bench: Bench) -> Seen:
    acl = bench.acl
    stream, device, host = bench.stream(), bench.malloc(4096), bench.pageable(4096)
    return held_or_released(
        lambda: acl.rt.memcpy_async(device, 4096, host, 4096, _TO_DEVICE, stream), lambda: bench.busy(stream, _BUSY)
    )


@GIL.check("rt.memcpy", "§3", "held", seconds=_SECONDS)
def _memcpy(bench: Bench) -> Seen:
    acl = bench.acl
    size = bench.large
    device, host = bench.malloc(size), bench.pageable(size)
    return held_or_released(lambda: acl.rt.memcpy(device, size, host, size, _TO_DEVICE))


@GIL.check("rt.malloc of much memory", "§3", "held", seconds=_SECONDS)
def _malloc(bench: Bench) -> Seen:
    acl = bench.acl
    made: list[int] = []

    def malloc() -> None:
        address, ret = acl.rt.malloc(bench.large * 4, 0)
        if ret:
            raise Unavailable(f"{bench.large * 4} bytes could not be allocated: {ret}")
        made.append(address)

    try:
        return held_or_released(malloc)
    finally:
        for address in made:
            acl.rt.free(address)


@GIL.check("aclrtMemcpy", "§21", "released", seconds=_SECONDS)
def _c_memcpy(bench: Bench) -> Seen:
    c = bench.c
    size = bench.large
    device, host = bench.malloc(size), bench.pageable(size)
    return held_or_released(lambda: c.aclrtMemcpy(device, size, host, size, _TO_DEVICE))


@GIL.check("aclrtMalloc of much memory", "§21", "released", seconds=_SECONDS)
def _c_malloc(bench: Bench) -> Seen:
    acl, c = bench.acl, bench.c
    made: list[int] = []

    def malloc() -> None:
        cell = c_void_p()
        ret = c.aclrtMalloc(byref(cell), bench.large * 4, 0)
        if ret:
            raise Unavailable(f"{bench.large * 4} bytes could not be allocated: {ret}")
        made.append(cell.value or 0)

    try:
        return held_or_released(malloc)
    finally:
        for address in made:
            acl.rt.free(address)


@GIL.check("aclrtDestroyStream, which waits for the stream", "§21", "released", seconds=_SECONDS)
def _c_destroy_stream(bench: Bench) -> Seen:
    c = bench.c
    streams: list[int] = []
    return held_or_released(lambda: c.aclrtDestroyStream(streams[-1]), lambda: streams.append(_busy_stream(bench)))


@GIL.check("aclrtUnSubscribeReport while a callback runs", "§3, §21", "released", seconds=_SECONDS)
def _c_unsubscribe(bench: Bench) -> Seen:
    """Through pyACL this could never end: the callback needs the GIL to return."""
    acl, c = bench.acl, bench.c
    reports: list[tuple[ReportThread, int]] = []

    def prepare() -> None:
        stream, begun = bench.stream(), threading.Event()

        def slow(_: object) -> None:
            begun.set()
            time.sleep(_BUSY)

        reports.append((bench.subscribed(stream), stream))
        ret = acl.rt.launch_callback(slow, None, 0, stream)
        bench.good(ret, "acl.rt.launch_callback")
        begun.wait(3.0)

    def unsubscribe() -> None:
        report, stream = reports[-1]
        ret = c.aclrtUnSubscribeReport(report.ident, stream)
        bench.good(ret, "aclrtUnSubscribeReport")
        report.forget()

    return held_or_released(unsubscribe, prepare)
