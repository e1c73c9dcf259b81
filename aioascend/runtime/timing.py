"""Timing what the streams do, for recordings: events with TIME_LINE around the work of each place.

They are made when a recording begins and destroyed at its end; without one there are none. A place that has none, and
a request whose events failed, are timed by the host alone: measuring never fails a request.
"""

from __future__ import annotations

from concurrent.futures import Future
from time import sleep
from typing import TYPE_CHECKING, Protocol

from ..driver import Driver
from ..driver.constants import EventFlag
from ..errors import AioascendError, ForkedProcess, InvalidInput, SessionClosed
from ..telemetry.clocks import Sample, best
from ..telemetry.marks import POINTS, Marks, now
from ..telemetry.recording import Recorder
from .core import DeviceCore

if TYPE_CHECKING:
    from .lane import Lane

__all__ = ["PlaceEvents", "Timing", "TimingSource"]

# A device of the 310 family has 1023 events in all (pyACL reference §7).
_MOST_PLACES = 32
_SAMPLES = 9
_PATIENCE_S = 1.0


class PlaceEvents:
    """The events of one place: before and after the work on each of its three streams."""

    __slots__ = ("_broken", "_core", "_driver", "_events")

    def __init__(self, core: DeviceCore) -> None:
        self._core = core
        self._driver = driver = core.driver
        self._broken = False
        self._events: list[int] = []
        try:
            for _ in POINTS:
                self._events.append(driver.create_event(EventFlag.TIME_LINE))
        except BaseException:
            self.destroy()
            raise

    def launched(self, marks: Marks | None) -> None:
        """A request takes the place now; device thread."""
        self._broken = False
        if marks is not None:
            marks.launched = now()

    def record(self, point: int, stream: int) -> None:
        """Let the event of `point` (an index into `POINTS`) capture what was queued on `stream` so far."""
        try:
            self._driver.record_event(self._events[point], stream)
        except AioascendError:
            self._broken = True

    def told(self, marks: Marks | None, instance: int) -> None:
        """The work of the place is confirmed: read the events; device thread."""
        if marks is None:
            return
        marks.told = now()
        marks.instance = instance
        if self._broken or not marks.launched:
            return
        try:
            marks.device_us = tuple(map(self._driver.event_timestamp_us, self._events))
        except AioascendError:
            pass

    def destroy(self) -> None:
        """Destroy the events; the release is deferred while work still refers to them."""
        while self._events:
            self._core.quietly(self._driver.destroy_event, self._events.pop())


class _Owner(Protocol):
    """What `Timing` needs of a pipeline."""

    recorder: Recorder | None

    @property
    def lanes(self) -> list[Lane]:
        """The instances of the model."""


class Timing:
    """The recordings of one pipeline, one at a time; control thread."""

    def __init__(self, core: DeviceCore, owner: _Owner) -> None:
        self._core = core
        self._owner = owner
        self._events: list[PlaceEvents] = []

    def begin(self, recorder: Recorder) -> Sample:
        """Note every request submitted from now on; raises `InvalidInput` if a recording is on already."""
        if self._owner.recorder is not None:
            raise InvalidInput("record: this session is being recorded already; a session can be in one recording")
        try:
            sample = self._sample()
            places = [place for lane in self._owner.lanes for place in lane.places][:_MOST_PLACES]
            for _ in places:
                self._events.append(PlaceEvents(self._core))
        except BaseException:
            self._destroy()
            raise

        def install() -> None:
            for place, events in zip(places, self._events, strict=True):
                place.timing = events
            self._owner.recorder = recorder

        self._core.call(install).result()
        return sample

    def end(self, recorder: Recorder | None = None) -> Sample | None:
        """Undo `begin`: of this recorder, or of whichever is on; None where it was ended before."""
        current = self._owner.recorder
        if current is None or recorder not in (None, current):
            return None

        def remove() -> None:
            self._owner.recorder = None
            for lane in self._owner.lanes:
                for place in lane.places:
                    place.timing = None

        self._core.call(remove).result()
        self._destroy()
        try:
            return self._sample()
        except AioascendError:
            return None  # the device is gone: the first sample has to do

    def leave_context(self) -> None:
        """The context goes, and the events with it: a recording that is on goes on with what the host sees."""
        self._destroy()

    def _destroy(self) -> None:
        while self._events:
            self._events.pop().destroy()

    def _sample(self) -> Sample:
        """Compare the clocks on a stream of our own, on which nothing else waits."""
        core = self._core
        core.recovery.check()
        driver, quietly = core.driver, core.quietly
        stream = driver.create_stream()
        try:
            event = driver.create_event(EventFlag.TIME_LINE | EventFlag.CAPTURE_STREAM_PROGRESS)
            try:
                return best([_compare(driver, event, stream) for _ in range(_SAMPLES)])
            finally:
                quietly(driver.synchronize_stream, stream)
                quietly(driver.destroy_event, event)
        finally:
            quietly(driver.destroy_stream, stream)


def _compare(driver: Driver, event: int, stream: int) -> Sample:
    before = now()
    driver.record_event(event, stream)
    # Asked for again and again, because waiting would add a wake-up of this thread to the error.
    while not driver.event_recorded(event):
        if now() - before > _PATIENCE_S:
            raise AioascendError(f"record: an event on an idle stream of {driver.device} was not reached in time")
        sleep(0)  # lets go of the GIL
    return Sample(before, driver.event_timestamp_us(event), now())


class TimingSource:
    """One session's side of a recording: what `aioascend.telemetry.record` talks to; from any thread."""

    def __init__(self, name: str, core: DeviceCore, timing: Timing) -> None:
        self.name = name
        self._core = core
        self._timing = timing

    def start_recording(self, recorder: Recorder) -> Future[Sample]:
        """Note every request that is submitted from now on; gives a sample of the device's clock."""
        return self._core.control(self._timing.begin, recorder)

    def stop_recording(self, recorder: Recorder) -> Future[Sample | None]:
        """Undo it; gives another sample, None where the session or its device is gone."""
        try:
            return self._core.control(self._timing.end, recorder)
        except (SessionClosed, ForkedProcess):
            gone: Future[Sample | None] = Future()
            gone.set_result(None)
            return gone
