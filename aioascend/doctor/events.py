"""The three flavours of events: what they are before a record, what waits do, and the numbers of their states."""

from __future__ import annotations

import time

from .bench import Bench, code_text
from .checks import Group, Seen

__all__ = ["EVENTS"]

EVENTS = Group("events")

_SYNC, _PROGRESS, _TIME = 0x1, 0x2, 0x8
_OLD = (
    "plain",
    "legacy",
)  # what there is where the modern flavour is missing: apart from it, so that they are seen there
_EX = ("ex",)


@EVENTS.check("events of create_event_ex_with_flag are there", "§7, §19", "there")
def _ex(bench: Bench) -> str:
    bench.event("ex", _SYNC)
    return "there"


@EVENTS.check("query_event_status before a record: plain, legacy", "§7", "0, 0")
def _unrecorded(bench: Bench) -> str:
    return _status_before_a_record(bench, _OLD)


@EVENTS.check("query_event_status before a record: ex", "§7", "1")
def _unrecorded_ex(bench: Bench) -> str:
    return _status_before_a_record(bench, _EX)


def _status_before_a_record(bench: Bench, flavours: tuple[str, ...]) -> str:
    acl = bench.acl
    seen = []
    for flavour in flavours:
        status, ret = acl.rt.query_event_status(bench.event(flavour, _SYNC | _PROGRESS))
        bench.good(ret, f"acl.rt.query_event_status ({flavour})")
        seen.append(str(status))
    return ", ".join(seen)


@EVENTS.check("query_event before a record: plain, legacy", "§7", "0, 0")
def _unrecorded_old(bench: Bench) -> str:
    return _query_before_a_record(bench, _OLD)


@EVENTS.check("query_event of an ex event is refused", "§7", "code 207000")
def _query_of_ex(bench: Bench) -> str:
    return _query_before_a_record(bench, _EX)


def _query_before_a_record(bench: Bench, flavours: tuple[str, ...]) -> str:
    acl = bench.acl
    seen = []
    for flavour in flavours:
        status, ret = acl.rt.query_event(bench.event(flavour, _SYNC | _PROGRESS))
        seen.append(f"code {ret}" if ret else str(status))
    return ", ".join(seen)


@EVENTS.check("query_event_wait_status of an ex event is refused", "§7", "207000")
def _wait_status_of_ex(bench: Bench) -> str:
    acl = bench.acl
    _status, ret = acl.rt.query_event_wait_status(bench.event("ex", _SYNC))
    return code_text(ret)


@EVENTS.check("reset_event of an ex event is refused", "§7", "207000")
def _reset_of_ex(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.reset_event(bench.event("ex", _SYNC), bench.stream())
    return code_text(ret)


@EVENTS.check("a legacy event without a flag is refused", "§7", "107000")
def _no_flag(bench: Bench) -> str:
    acl = bench.acl
    event, ret = acl.rt.create_event_with_flag(0)
    if not ret:
        acl.rt.destroy_event(event)
    return code_text(ret)


@EVENTS.check("an ex event without a flag is refused", "§7", "107000")
def _no_flag_ex(bench: Bench) -> str:
    acl = bench.acl
    event, ret = acl.rt.create_event_ex_with_flag(0)
    if not ret:
        acl.rt.destroy_event(event)
    return code_text(ret)


@EVENTS.check("waiting for a plain event before its record is refused", "§7", "107000")
def _wait_unrecorded_plain(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    ret = acl.rt.stream_wait_event(stream, bench.event("plain"))
    return code_text(ret)


@EVENTS.check("waiting for an ex event before its record waits for nothing", "§7", "0, the stream is empty")
def _wait_unrecorded_ex(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    ret = acl.rt.stream_wait_event(stream, bench.event("ex", _SYNC))
    done = acl.rt.synchronize_stream_with_timeout(stream, 500)
    return f"{ret}, the stream {'is empty' if done == 0 else f'gives {done}'}"


@EVENTS.check("waiting for a legacy event before its record waits for a later one", "§7", "waits, then goes on")
def _wait_unrecorded_legacy(bench: Bench) -> str:
    acl = bench.acl
    stream, other = bench.stream(), bench.stream()
    event = bench.event("legacy", _SYNC)
    ret = acl.rt.stream_wait_event(stream, event)
    bench.good(ret, "acl.rt.stream_wait_event")
    time.sleep(0.05)
    status, ret = acl.rt.stream_query(stream)
    bench.good(ret, "acl.rt.stream_query")
    ret = acl.rt.record_event(event, other)
    bench.good(ret, "acl.rt.record_event")
    done = acl.rt.synchronize_stream_with_timeout(stream, 2000)
    return f"{'waits' if status == 1 else 'does not wait'}, then {'goes on' if done == 0 else f'gives {done}'}"


@EVENTS.check("synchronize_event before a record returns at once: plain, legacy", "§7", "0, 0")
def _synchronize_unrecorded(bench: Bench) -> str:
    return _synchronize_before_a_record(bench, _OLD)


@EVENTS.check("synchronize_event before a record returns at once: ex", "§7", "0")
def _synchronize_unrecorded_ex(bench: Bench) -> str:
    return _synchronize_before_a_record(bench, _EX)


def _synchronize_before_a_record(bench: Bench, flavours: tuple[str, ...]) -> str:
    acl = bench.acl
    seen = []
    for flavour in flavours:
        ret = acl.rt.synchronize_event(bench.event(flavour, _SYNC | _PROGRESS))
        seen.append(str(ret))
    return ", ".join(seen)


@EVENTS.check("synchronize_event_with_timeout of 0 ms is refused", "§7", "107000")
def _no_timeout(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.synchronize_event_with_timeout(bench.event(bench.flavour, _SYNC), 0)
    return code_text(ret)


@EVENTS.check("query_event_status while work is before it, and after: plain, legacy", "§7", "0 and 1, 0 and 1")
def _recorded(bench: Bench) -> str:
    return _status_around_work(bench, _OLD)


@EVENTS.check("query_event_status while work is before it, and after: ex", "§7", "0 and 1")
def _recorded_ex(bench: Bench) -> str:
    return _status_around_work(bench, _EX)


def _status_around_work(bench: Bench, flavours: tuple[str, ...]) -> str:
    acl = bench.acl
    stream = bench.stream()
    events = [bench.event(flavour, _SYNC | _PROGRESS) for flavour in flavours]
    bench.busy(stream, 0.2)
    for event in events:
        ret = acl.rt.record_event(event, stream)
        bench.good(ret, "acl.rt.record_event")
    during = []
    for event in events:
        status, ret = acl.rt.query_event_status(event)
        bench.good(ret, "acl.rt.query_event_status")
        during.append(status)
    ret = acl.rt.synchronize_stream(stream)
    bench.good(ret, "acl.rt.synchronize_stream")
    seen = []
    for event, before in zip(events, during, strict=True):
        status, ret = acl.rt.query_event_status(event)
        bench.good(ret, "acl.rt.query_event_status")
        seen.append(f"{before} and {status}")
    return ", ".join(seen)


@EVENTS.check("stream_query while there is work, and after", "§6", "1 and 0")
def _stream_query(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    bench.busy(stream, 0.2)
    during, ret = acl.rt.stream_query(stream)
    bench.good(ret, "acl.rt.stream_query")
    ret = acl.rt.synchronize_stream(stream)
    bench.good(ret, "acl.rt.synchronize_stream")
    after, ret = acl.rt.stream_query(stream)
    bench.good(ret, "acl.rt.stream_query")
    return f"{during} and {after}"


@EVENTS.check("query_event_wait_status of a legacy event that was waited for", "§7", "0")
def _wait_status(bench: Bench) -> str:
    acl = bench.acl
    stream, other = bench.stream(), bench.stream()
    event = bench.event("legacy", _SYNC)
    ret = acl.rt.record_event(event, stream)
    bench.good(ret, "acl.rt.record_event")
    ret = acl.rt.stream_wait_event(other, event)
    bench.good(ret, "acl.rt.stream_wait_event")
    ret = acl.rt.synchronize_stream(other)
    bench.good(ret, "acl.rt.synchronize_stream")
    status, ret = acl.rt.query_event_wait_status(event)
    bench.good(ret, "acl.rt.query_event_wait_status")
    return str(status)


@EVENTS.check("a stream waits for an event of another stream", "§7", "in that order")
def _order(bench: Bench) -> str:
    acl = bench.acl
    first, second = bench.stream(), bench.stream()
    event = bench.event(bench.flavour, _SYNC)
    bench.busy(first, 0.2)
    ret = acl.rt.record_event(event, first)
    bench.good(ret, "acl.rt.record_event")
    ret = acl.rt.stream_wait_event(second, event)
    bench.good(ret, "acl.rt.stream_wait_event")
    ret = acl.rt.synchronize_stream(second)
    bench.good(ret, "acl.rt.synchronize_stream")
    status, ret = acl.rt.stream_query(first)
    bench.good(ret, "acl.rt.stream_query")
    return "in that order" if status == 0 else "the second did not wait"


@EVENTS.check("an ex event recorded anew says nothing of its earlier record", "§7", "0, then 1")
def _again(bench: Bench) -> str:
    acl = bench.acl
    stream, event = bench.stream(), bench.event("ex", _SYNC | _PROGRESS)
    ret = acl.rt.record_event(event, stream)
    bench.good(ret, "acl.rt.record_event")
    ret = acl.rt.synchronize_stream(stream)
    bench.good(ret, "acl.rt.synchronize_stream")
    bench.busy(stream, 0.2)
    ret = acl.rt.record_event(event, stream)
    bench.good(ret, "a second acl.rt.record_event")
    during, ret = acl.rt.query_event_status(event)
    bench.good(ret, "acl.rt.query_event_status")
    ret = acl.rt.synchronize_event(event)
    bench.good(ret, "acl.rt.synchronize_event")
    after, ret = acl.rt.query_event_status(event)
    bench.good(ret, "acl.rt.query_event_status")
    return f"{during}, then {after}"


@EVENTS.check("an earlier wait for an ex event is not changed by a later record", "§7", "not changed")
def _earlier_wait(bench: Bench) -> str:
    acl = bench.acl
    first, slow, waiting = bench.stream(), bench.stream(), bench.stream()
    event = bench.event("ex", _SYNC)
    ret = acl.rt.record_event(event, first)
    bench.good(ret, "acl.rt.record_event")
    ret = acl.rt.stream_wait_event(waiting, event)
    bench.good(ret, "acl.rt.stream_wait_event")
    bench.busy(slow, 0.4)
    ret = acl.rt.record_event(event, slow)
    bench.good(ret, "a second acl.rt.record_event")
    ret = acl.rt.synchronize_stream(waiting)
    bench.good(ret, "acl.rt.synchronize_stream")
    status, ret = acl.rt.stream_query(slow)
    bench.good(ret, "acl.rt.stream_query")
    return "not changed" if status == 1 else "it waited for the later record"


@EVENTS.check("an event without the SYNC flag cannot be waited for on the device", "§7", "207000")
def _no_sync(bench: Bench) -> str:
    acl = bench.acl
    stream, event = bench.stream(), bench.event("ex", _PROGRESS)
    ret = acl.rt.record_event(event, stream)
    bench.good(ret, "acl.rt.record_event")
    ret = acl.rt.stream_wait_event(stream, event)
    return code_text(ret)


@EVENTS.check("the time between unrecorded events is refused", "§7", "507000")
def _no_time(bench: Bench) -> str:
    acl = bench.acl
    start, end = (bench.event(bench.flavour, _SYNC | _TIME) for _ in range(2))
    _elapsed, ret = acl.rt.event_elapsed_time(start, end)
    return code_text(ret)


@EVENTS.check("the time between two events is in milliseconds", "§7", "about that of the host")
def _elapsed(bench: Bench) -> Seen:
    acl = bench.acl
    stream = bench.stream()
    start, end = (bench.event(bench.flavour, _SYNC | _TIME) for _ in range(2))
    ret = acl.rt.synchronize_stream(stream)
    bench.good(ret, "acl.rt.synchronize_stream")
    begun = time.perf_counter()
    ret = acl.rt.record_event(start, stream)
    bench.good(ret, "acl.rt.record_event")
    bench.busy(stream, 0.1)
    ret = acl.rt.record_event(end, stream)
    bench.good(ret, "acl.rt.record_event")
    ret = acl.rt.synchronize_stream(stream)
    bench.good(ret, "acl.rt.synchronize_stream")
    host = (time.perf_counter() - begun) * 1e3
    elapsed, ret = acl.rt.event_elapsed_time(start, end)
    bench.good(ret, "acl.rt.event_elapsed_time")
    near = host / 4 < elapsed < host * 1.5
    return Seen("about that of the host" if near else "another time", f"{elapsed:.1f} ms, host {host:.1f} ms")


@EVENTS.check("events that are left", "§7")
def _left(bench: Bench) -> str:
    acl = bench.acl
    count, ret = acl.rt.get_event_avail_num()
    bench.good(ret, "acl.rt.get_event_avail_num")
    return str(count)
