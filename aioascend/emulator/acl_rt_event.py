"""``acl.rt``: events of three flavours (reference §7)."""

from __future__ import annotations

from . import codes
from .args import Failure, call
from .process import Process
from .streams import Event, Flavour, Marker, State
from .tasks import LegacyWait, Record, Reset, Wait
from .waiting import wait_for_event_id, wait_for_record

_PLAIN_FLAGS = codes.EVENT_SYNC | codes.EVENT_TIME_LINE | codes.EVENT_CAPTURE_STREAM_PROGRESS


class EventCalls:
    """Event functions."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._limit = process.config.event_limit
        # nobody watches, and nothing takes a profile's time: what is done already need not be queued
        self._plain = process.races is None and process.config.profile is None

    @call(failed=(0,))
    def create_event(self) -> tuple[int, int]:
        """An event for waiting, timing and asking; every record starts it anew."""
        return self._create(Flavour.PLAIN, _PLAIN_FLAGS)

    @call("I", failed=(0,))
    def create_event_with_flag(self, flag: int) -> tuple[int, int]:
        """The legacy flavour: a flag on the device that a record sets and `reset_event` clears."""
        return self._create(Flavour.LEGACY, flag)

    @call("I", failed=(0,))
    def create_event_ex_with_flag(self, flag: int) -> tuple[int, int]:
        """The modern flavour: waits refer to the latest record before them, no reset."""
        return self._create(Flavour.EX, flag)

    def _create(self, flavour: Flavour, flags: int) -> tuple[int, int]:
        if flags == 0 or flags & ~codes.EVENT_FLAGS:
            raise Failure(codes.PARAM_INVALID, f"{flags:#x} is no combination of event flags")
        process = self._process
        context = process.current()
        # the legacy flavour takes its device-side id here, the others when they are recorded
        if flavour is Flavour.LEGACY:
            device = context.device
            with process.lock:
                if device.events >= process.config.event_limit:
                    raise Failure(
                        codes.NO_EVENT_RESOURCE,
                        f"device {device.index} has {process.config.event_limit} events, all in use",
                    )
                device.events += 1
        handle = process.new_handle()
        process.events[handle] = Event(handle, context, flavour, flags)
        process.findings.made("event", handle)
        return handle, codes.SUCCESS

    @call("k")
    def destroy_event(self, event: int) -> int:
        """Destroy an event at once; work that refers to it keeps what it needs."""
        process = self._process
        found = process.event(event)
        if process.events.pop(event, None) is not None and found.flavour is Flavour.LEGACY:
            with process.lock:
                found.context.device.events -= 1
        return codes.SUCCESS

    @call("kk")
    def record_event(self, event: int, stream: int) -> int:
        """Note when the stream gets here. Event and stream must be of one context."""
        process = self._process
        found = process.events.get(event) or process.event(event)
        target = process.stream(stream)
        context = target.context
        if found.context is not context:
            text = f"event {event:#x} belongs to another context than the stream"
            raise Failure(codes.STREAM_CONTEXT, text, "foreign-context")
        device = context.device
        engine = device.engine or process.engine_of(target)
        model, legacy = engine.model, found.flavour is Flavour.LEGACY
        if len(target.queue) >= engine.depth or context.stopped is not None:
            engine.room(target, "acl.rt.record_event")
        if model.records + device.events >= self._limit and not legacy:
            wait_for_event_id(process, device, engine, self._limit, "acl.rt.record_event")
        with engine.lock:
            found.marker = marker = Marker()
            if target.state is State.IDLE and self._plain and not legacy:
                marker.done = True
                marker.time = model.clock()
                model.skip(target)
                return codes.SUCCESS
            model.records += 1
            if model.submit(target, Record(found, marker)):
                engine.kick()
        if process.races is not None:
            process.races.tell()
        return codes.SUCCESS

    @call("kk")
    def stream_wait_event(self, stream: int, event: int) -> int:
        """Hold the stream until the event is recorded; returns at once."""
        process = self._process
        target = process.stream(stream)
        found = process.events.get(event) or process.event(event)
        context = target.context
        if not found.flags & codes.EVENT_SYNC:
            raise Failure(codes.FEATURE_NOT_SUPPORT, f"event {event:#x} was made without the SYNC flag")
        if found.context is not context and found.context.device is not context.device:
            raise Failure(codes.STREAM_CONTEXT, f"event {event:#x} belongs to another device than the stream")
        engine = context.device.engine or process.engine_of(target)
        if len(target.queue) >= engine.depth or context.stopped is not None:
            engine.room(target, "acl.rt.stream_wait_event")
        with engine.lock:
            if found.flavour is Flavour.LEGACY:
                runnable = engine.model.submit(target, LegacyWait(found))
            else:
                marker = found.marker
                if marker is None:
                    if found.flavour is Flavour.EX:
                        if process.races is not None:
                            process.races.in_vain(target, found)
                        return codes.SUCCESS
                    raise Failure(
                        codes.PARAM_INVALID, f"event {event:#x} was never recorded, so it cannot be waited for"
                    )
                if marker.done and self._plain:
                    return codes.SUCCESS
                runnable = engine.model.submit(target, Wait(found, marker))
            if runnable:
                engine.kick()
        return codes.SUCCESS

    @call("kk")
    def reset_event(self, event: int, stream: int) -> int:
        """Clear the event when the (waiting) stream gets here."""
        process = self._process
        found = process.event(event)
        if found.flavour is Flavour.EX:
            raise Failure(
                codes.FEATURE_NOT_SUPPORT, "an event of create_event_ex_with_flag needs no reset and has none"
            )
        target = process.stream(stream)
        process.engine_of(target).submit(target, Reset(found), "acl.rt.reset_event")
        return codes.SUCCESS

    @call("k", failed=(codes.EVENT_NOT_READY,))
    def query_event(self, event: int) -> tuple[int, int]:
        """Deprecated: 0 complete (also before any record), 1 not ready."""
        found = self._process.event(event)
        if found.flavour is Flavour.EX:
            raise Failure(codes.FEATURE_NOT_SUPPORT, "query_event does not take an event of create_event_ex_with_flag")
        marker = found.marker
        if marker is None or self._is_done(marker):
            return codes.EVENT_COMPLETE, codes.SUCCESS
        return codes.EVENT_NOT_READY, codes.SUCCESS

    @call("k", failed=(codes.EVENT_RECORD_NOT_READY,))
    def query_event_status(self, event: int) -> tuple[int, int]:
        """Record side: 1 complete, 0 not ready. Before any record: complete for the ex flavour only."""
        found = self._process.event(event)
        marker = found.marker
        done = found.flavour is Flavour.EX if marker is None else self._is_done(marker)
        return (codes.EVENT_RECORD_COMPLETE if done else codes.EVENT_RECORD_NOT_READY), codes.SUCCESS

    @call("k", failed=(codes.EVENT_NOT_READY,))
    def query_event_wait_status(self, event: int) -> tuple[int, int]:
        """Wait side: 0 when every wait submitted so far was passed, 1 else."""
        found = self._process.event(event)
        if found.flavour is Flavour.EX:
            raise Failure(
                codes.FEATURE_NOT_SUPPORT, "query_event_wait_status does not take an event of create_event_ex_with_flag"
            )
        if found.waits:
            return codes.EVENT_NOT_READY, codes.SUCCESS
        if self._process.races is not None:
            self._process.races.learn_waits(found)
        return codes.EVENT_COMPLETE, codes.SUCCESS

    def _is_done(self, marker: Marker) -> bool:
        """Whether the stream has got to a record; who asks knows from then on what is done."""
        if not marker.is_done():
            return False
        if self._process.races is not None:
            self._process.races.learn(marker.mark)
        return True

    @call("k")
    def synchronize_event(self, event: int) -> int:
        """Wait until the latest record is done; at once if there is none."""
        return self._synchronize(event, -1, "acl.rt.synchronize_event")

    @call("ki")
    def synchronize_event_with_timeout(self, event: int, timeout: int) -> int:
        """The same for at most `timeout` milliseconds (-1: for ever): then 507047."""
        if timeout < -1 or timeout == 0:
            raise Failure(codes.PARAM_INVALID, f"a timeout of -1 or more than 0 ms was wanted, {timeout} was given")
        if timeout > 0:
            self._process.chip_has("synchronize_event_with_timeout", "waiting for events with a limit")
        return self._synchronize(event, timeout, "acl.rt.synchronize_event_with_timeout")

    def _synchronize(self, handle: int, timeout: int, call: str) -> int:
        found = self._process.event(handle)
        marker = found.marker
        if marker is None or self._is_done(marker):
            return codes.SUCCESS
        waiter = wait_for_record(self._process, found.context.device.running(), marker, timeout, call)
        if waiter.code:
            raise Failure(waiter.code, "waiting was ended: the device was shut down")
        if not marker.is_done():
            raise Failure(codes.EVENT_SYNC_TIMEOUT, f"event {handle:#x} was not recorded within {timeout} ms")
        self._is_done(marker)
        return codes.SUCCESS

    @call("kk", failed=(0.0,))
    def event_elapsed_time(self, start: int, end: int) -> tuple[float, int]:
        """Milliseconds between two records; both events need the TIME_LINE flag."""
        first, last = self._time(start), self._time(end)
        if last < first:
            raise Failure(codes.EVENT_TIMESTAMP_REVERSAL, "the end event was recorded before the start event")
        return (last - first) * 1e3, codes.SUCCESS

    @call("k", failed=(0,))
    def event_get_timestamp(self, event: int) -> tuple[int, int]:
        """Device time of the record in microseconds."""
        return int(self._time(event) * 1e6), codes.SUCCESS

    def _time(self, handle: int) -> float:
        found = self._process.event(handle)
        if not found.flags & codes.EVENT_TIME_LINE:
            raise Failure(codes.EVENT_TIMESTAMP_INVALID, f"event {handle:#x} was made without the TIME_LINE flag")
        marker = found.marker
        if marker is None:
            raise Failure(codes.RT_INTERNAL_ERROR, f"event {handle:#x} was never recorded")
        if not self._is_done(marker):
            raise Failure(codes.EVENT_TIMESTAMP_INVALID, f"the record of event {handle:#x} is not done")
        return marker.time

    @call("k", failed=(0,))
    def get_event_id(self, event: int) -> tuple[int, int]:
        """A small number for logs."""
        return (self._process.event(event).handle >> 6) & 0x7FFFFFFF, codes.SUCCESS

    @call(failed=(0,))
    def get_event_avail_num(self) -> tuple[int, int]:
        """How many more events the device has."""
        process = self._process
        return process.config.event_limit - process.current().device.events, codes.SUCCESS
