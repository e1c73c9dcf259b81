"""Streams: the default stream, how many are left, the functions that are there at all."""

from __future__ import annotations

import threading

from .bench import Bench, code_text
from .checks import Group

__all__ = ["STREAMS"]

STREAMS = Group("streams")

_TO_DEVICE = 1


@STREAMS.check("stream 0 is the context's default stream, for copies and waits", "§6", "0, 0")
def _default_stream(bench: Bench) -> str:
    acl = bench.acl
    pinned, device = bench.malloc_host(64), bench.malloc(64)
    copied = acl.rt.memcpy_async(device, 64, pinned, 64, _TO_DEVICE, 0)
    waited = acl.rt.synchronize_stream(0)
    return f"{copied}, {waited}"


@STREAMS.check("callbacks of stream 0", "§6, §9", "delivered")
def _default_callbacks(bench: Bench) -> str:
    acl = bench.acl
    bench.subscribed(0)
    done = threading.Event()
    ret = acl.rt.launch_callback(lambda _: done.set(), None, 0, 0)
    bench.good(ret, "acl.rt.launch_callback")
    return "delivered" if done.wait(3.0) else "not delivered"


@STREAMS.check("whether stream 0 waits for other streams (never relied on)", "§6, §19")
def _barrier(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    pinned, device = bench.malloc_host(64), bench.malloc(64)
    bench.busy(stream, 0.3)
    ret = acl.rt.memcpy_async(device, 64, pinned, 64, _TO_DEVICE, 0)
    bench.good(ret, "acl.rt.memcpy_async")
    ret = acl.rt.synchronize_stream(0)
    bench.good(ret, "acl.rt.synchronize_stream")
    status, ret = acl.rt.stream_query(stream)
    bench.good(ret, "acl.rt.stream_query")
    return "it does not" if status == 1 else "it does"


@STREAMS.check("two streams run side by side", "§6", "side by side")
def _side_by_side(bench: Bench) -> str:
    acl = bench.acl
    busy, idle = bench.stream(), bench.stream()
    bench.busy(busy, 0.3)
    event = bench.event("plain")
    ret = acl.rt.record_event(event, idle)
    bench.good(ret, "acl.rt.record_event")
    ret = acl.rt.synchronize_stream(idle)
    bench.good(ret, "acl.rt.synchronize_stream")
    status, ret = acl.rt.stream_query(busy)
    bench.good(ret, "acl.rt.stream_query")
    return "side by side" if status == 1 else "one after the other"


@STREAMS.check("streams that are left", "§6")
def _left(bench: Bench) -> str:
    acl = bench.acl
    count, ret = acl.rt.get_stream_available_num()
    bench.good(ret, "acl.rt.get_stream_available_num")
    return str(count)


@STREAMS.check("twenty streams can be made and destroyed", "§6", "0 everywhere")
def _many(bench: Bench) -> str:
    acl = bench.acl
    made, wrong = [], set()
    for _ in range(20):
        stream, ret = acl.rt.create_stream()
        if ret:
            wrong.add(ret)
        else:
            made.append(stream)
    for stream in made:
        ret = acl.rt.destroy_stream(stream)
        if ret:
            wrong.add(ret)
    return ", ".join(map(code_text, sorted(wrong))) or "0 everywhere"


# What aioascend calls where it is there, and does without where it is not.
_OPTIONAL = ("create_event_ex_with_flag", "synchronize_stream_with_timeout", "synchronize_event_with_timeout")


@STREAMS.check("newer functions of acl.rt are there", "§7, §19", "all of them")
def _newer(bench: Bench) -> str:
    acl = bench.acl
    missing = [name for name in _OPTIONAL if not hasattr(acl.rt, name)]
    return f"not {', '.join(missing)}" if missing else "all of them"
