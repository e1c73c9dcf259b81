"""The tasks of a stream that need no work: event records, waits and resets, callbacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import codes
from .device_model import DONE, DeviceModel, Step, Task
from .streams import Event, Flavour, Marker, Stream


class Record(Task):
    """Record an event: everything before it on the stream is done."""

    __slots__ = ("event", "marker")

    def __init__(self, event: Event, marker: Marker) -> None:
        self.event = event
        self.marker = marker

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """The record is done."""
        marker = self.marker
        marker.time = stream.ready_at if model.timed else model.clock()
        marker.done = True
        model.records -= 1
        if marker.parked is not None or marker.waiters is not None:
            model.let_go(marker)
        if self.event.flavour is Flavour.LEGACY:
            self.event.raised = True
            model.unpark_all(self.event.parked)
        return DONE

    def dropped(self, model: DeviceModel) -> None:
        """A record that never comes must not leave its waiters for ever."""
        marker = self.marker
        marker.time = model.clock()
        marker.done = True
        model.records -= 1
        model.let_go(marker)


class Wait(Task):
    """Hold the stream until a record is done (plain and ex flavour)."""

    __slots__ = ("event", "marker")

    def __init__(self, event: Event, marker: Marker) -> None:
        self.event = event
        self.marker = marker
        event.waits += 1

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Go on if the record is done."""
        marker = self.marker
        if not marker.done:
            if marker.parked is None:
                marker.parked = []
            marker.parked.append((stream, self))
            return Step.PARKED
        if model.timed:
            stream.ready_at = max(stream.ready_at, marker.time)
        self.event.waits -= 1
        return DONE

    def dropped(self, model: DeviceModel) -> None:
        """One wait less."""
        self.event.waits -= 1


class LegacyWait(Task):
    """Hold the stream while the event's device-side flag is down (legacy flavour)."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event
        event.waits += 1

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Go on if the flag is up."""
        if not self.event.raised:
            self.event.parked.append((stream, self))
            return Step.PARKED
        if model.timed and self.event.marker is not None:
            stream.ready_at = max(stream.ready_at, self.event.marker.time)
        self.event.waits -= 1
        return Step.DONE

    def dropped(self, model: DeviceModel) -> None:
        """One wait less."""
        self.event.waits -= 1


class Reset(Task):
    """Bring an event back to "not recorded" when the waiting stream reaches this point."""

    __slots__ = ("event", "marker")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.marker = event.marker

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Take the record back."""
        self.event.raised = False
        # a record submitted after this reset is the event's new life
        if self.event.marker is self.marker:
            self.event.marker = None
        return Step.DONE


def undelivered(stream: Stream) -> int:
    """Callbacks launched on `stream` that its report thread has not begun. The lock of the engine is held."""
    report = stream.report
    if report is None:
        return 0
    reached = sum(entry.stream is stream for entry in report.entries)
    return reached + sum(isinstance(task, Callback) and task.stream is None for task in stream.queue)


class Callback(Task):
    """A host function for the stream's report thread; ``block`` holds the stream until it has returned."""

    __slots__ = ("__dict__", "block", "function", "stream", "user_data")

    late = False
    # the program's line that launched it, if anybody asked for it
    site = ""
    # what a watch knows of it
    step: Any = None

    def __init__(self, function: Callable[[Any], Any], user_data: Any, block: bool) -> None:
        self.function = function
        self.user_data = user_data
        self.block = block
        self.stream: Stream | None = None

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Hand the function to the report thread."""
        report = stream.report
        if report is None:
            if self.block and model.watch is not None:
                model.watch.returned(self)
            return Step.DONE
        if model.lateness is not None and not self.late and (seconds := model.lateness()):
            self.late = True
            model.at(model.clock() + seconds, partial(model.unpark_all, [(stream, self)]))
            return Step.PARKED
        self.stream = stream
        report.entries.append(self)
        report.wake(codes.SUCCESS)
        return Step.PARKED if self.block else Step.DONE
