"""Host threads that wait for the device.

The internal lock is held to enter and to leave, never while waiting. Before a thread waits, the graph of waits is asked
whether that can ever end. A call that holds the GIL in pyACL holds it here too while it waits, if the profile wants
that.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeGuard

from . import codes, gil
from .args import Failure
from .device_model import Task
from .engine import Engine, HostWaiter
from .streams import Fault, Flavour, Marker, Stream
from .tasks import Record
from .wait_graph import HostWait, name, never_returns

if TYPE_CHECKING:
    from .process import Device, Process


def wait_for_stream(process: Process, stream: Stream, milliseconds: int, call: str) -> Fault | None:
    """Wait until everything submitted to `stream` so far is done; its pending failure, which this call consumes.

    A negative time is for ever; the time going by gives 507046 and leaves the stream running.
    """
    races = process.races
    if races is None:
        return _wait_for_stream(process, stream, milliseconds, call)
    seen = races.here(stream)
    fault = _wait_for_stream(process, stream, milliseconds, call)
    races.learn(seen)
    return fault


def _wait_for_stream(process: Process, stream: Stream, milliseconds: int, call: str) -> Fault | None:
    engine = process.engine_of(stream)
    with engine.lock:
        target = stream.submitted
        if stream.completed >= target:
            return stream.take_fault()
    waiter = _wait_for_tasks(process, engine, stream, target, milliseconds, call)
    with engine.lock:
        fault = stream.take_fault() if stream.completed >= target else None
    if fault is not None:
        return fault
    if waiter.code:
        raise Failure(waiter.code, "waiting was ended: the stream was aborted or its device shut down")
    if not waiter.woken and stream.completed < target:
        raise Failure(codes.STREAM_SYNC_TIMEOUT, f"stream {stream.handle:#x} still has work after {milliseconds} ms")
    return fault


def wait_for_stream_to_end(process: Process, stream: Stream, call: str) -> None:
    """Wait until everything submitted to `stream` is done, for a call that gives up the stream or its context.

    A device that is lost, before or meanwhile, does nothing more: the call goes on.
    """
    if stream.context.device.lost:
        return
    try:
        wait_for_stream(process, stream, -1, call)
    except Failure:
        if not stream.context.device.lost:
            raise


def wait_for_device(process: Process, device: Device, milliseconds: int, call: str) -> None:
    """Wait for every stream of the device. A pending failure stays for its own stream's next status call."""
    engine, races = device.running(), process.races
    end = perf_counter() + milliseconds / 1000
    streams = device.all_streams()
    seen = [races.here(stream) for stream in streams] if races is not None else []
    for stream in streams:
        with engine.lock:
            target = stream.submitted
            if stream.completed >= target:
                continue
        left = -1 if milliseconds < 0 else max(1, int((end - perf_counter()) * 1000))
        waiter = _wait_for_tasks(process, engine, stream, target, left, call)
        if waiter.code:
            raise Failure(waiter.code, "waiting was ended: a stream was aborted or the device shut down")
        if not waiter.woken and stream.completed < target:
            raise Failure(codes.STREAM_SYNC_TIMEOUT, f"device {device.index} still has work after {milliseconds} ms")
    if races is not None:
        for step in seen:
            races.learn(step)


def wait_for_room(process: Process, stream: Stream, depth: int, call: str) -> None:
    """Wait until `stream` holds less than `depth` tasks."""
    engine = process.engine_of(stream)
    with engine.lock:
        target = stream.submitted - depth + 1
        if stream.completed >= target:
            return
    what = f"room on {name(stream)}, which has {depth} tasks queued"
    waiter = _wait_for_tasks(process, engine, stream, target, -1, call, codes.STREAM_TASK_FULL, what)
    if waiter.code:
        raise Failure(waiter.code, "waiting for room was ended: the stream was aborted or its device shut down")


def wait_for_record(process: Process, engine: Engine, marker: Marker, milliseconds: int, call: str) -> HostWaiter:
    """Wait until a record of an event is done."""
    wait = HostWait(call, get_ident(), gil.holds(call), records=(marker,), what="an event")
    stuck = look_ahead(process, engine, wait, milliseconds)
    with engine.lock:
        waiter = engine.waiter()
        if marker.done:
            waiter.wake(codes.SUCCESS)
        else:
            marker.add(waiter)
    stay(process, engine, wait, waiter, milliseconds, stuck, marker.remove, waiter)
    return waiter


def wait_for_event_id(process: Process, device: Device, engine: Engine, limit: int, call: str) -> None:
    """Wait until a record can have an id: legacy events keep one, the records of others have one until they are done.

    The runtime tries again inside the call until one is free (reference §7).
    """
    while True:
        with engine.lock:
            records = [[one.marker for one in stream.queue if _takes_an_id(one)] for stream in engine.streams()]
        if device.events + sum(map(len, records)) < limit:
            return
        # the first one on each stream: no other is done before
        markers = tuple(one[0] for one in records if one)
        if not markers:
            raise Failure(codes.NO_EVENT_RESOURCE, f"device {device.index} has {limit} events, all in use")
        wait = HostWait(call, get_ident(), gil.holds(call), records=markers, what=f"one of the {limit} event ids")
        stuck = look_ahead(process, engine, wait, -1, codes.NO_EVENT_RESOURCE)
        with engine.lock:
            waiter = engine.waiter()
            if any(marker.done for marker in markers):
                waiter.wake(codes.SUCCESS)
            else:
                for marker in markers:
                    marker.add(waiter)
        stay(process, engine, wait, waiter, -1, stuck, _forget, (waiter, markers))
        with engine.lock:
            _forget((waiter, markers))
        if waiter.code:
            raise Failure(waiter.code, "waiting for an event id was ended: the device was shut down")


def _takes_an_id(task: Task) -> TypeGuard[Record]:
    return isinstance(task, Record) and task.event.flavour is not Flavour.LEGACY


def _forget(entry: tuple[HostWaiter, tuple[Marker, ...]]) -> None:
    waiter, markers = entry
    for marker in markers:
        marker.remove(waiter)


def look_ahead_at_stream(process: Process, stream: Stream, call: str) -> None:
    """In strict mode refuse to wait for `stream` for ever, before anything was done for a call that will."""
    if not process.findings.strict:
        return
    engine = process.engine_of(stream)
    wait = HostWait(call, get_ident(), gil.holds(call), ((stream, stream.submitted),))
    look_ahead(process, engine, wait, -1)


def look_ahead(
    process: Process, engine: Engine, wait: HostWait, milliseconds: int, code: int = codes.WAIT_TIMEOUT
) -> bool:
    """Whether `wait` can never end. Without a limit that is a finding, in strict mode a failure with `code`."""
    if milliseconds >= 0 and not (wait.held and process.holds_gil):
        return False
    with engine.lock:
        why = never_returns(wait, engine.streams(), process.waiting)
    if why is None:
        return False
    if milliseconds < 0:
        process.findings.note("deadlock", wait.call, why, code)
    return True


def stay(
    process: Process,
    engine: Engine,
    wait: HostWait,
    waiter: HostWaiter,
    milliseconds: int,
    stuck: bool,
    leave: Callable[[Any], None],
    entry: Any,
) -> None:
    """Wait, with the GIL held if the call does that; `leave` takes `entry` back where it was put to be woken.

    What could never end is waited for with the GIL released, so that it does.
    """
    if milliseconds < 0:
        process.waiting[wait.thread] = wait
    try:
        if wait.held and process.holds_gil and not (stuck and milliseconds < 0):
            engine.hold(waiter, milliseconds, stuck)
        else:
            waiter.wait(milliseconds)
    finally:
        process.waiting.pop(wait.thread, None)
        with engine.lock:
            engine.hosts.discard(waiter)
            if not waiter.woken:
                leave(entry)


def _wait_for_tasks(
    process: Process,
    engine: Engine,
    stream: Stream,
    target: int,
    milliseconds: int,
    call: str,
    code: int = codes.WAIT_TIMEOUT,
    what: str = "",
) -> HostWaiter:
    wait = HostWait(call, get_ident(), gil.holds(call), ((stream, target),), what=what)
    stuck = look_ahead(process, engine, wait, milliseconds, code)
    with engine.lock:
        waiter = engine.waiter()
        entry = (target, waiter)
        if stream.completed >= target:
            waiter.wake(codes.SUCCESS)
        else:
            # those who wait for less are woken first
            place = sum(one <= target for one, _ in stream.waiters)
            stream.waiters.insert(place, entry)
    stay(process, engine, wait, waiter, milliseconds, stuck, stream.waiters.remove, entry)
    return waiter
