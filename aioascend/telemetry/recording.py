"""Recordings: the requests of one or several sessions, noted for the length of a block."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from concurrent.futures import Future
from types import TracebackType
from typing import Protocol

from .clocks import DeviceClock, Sample
from .marks import Marks
from .timeline import Timeline, request_times

__all__ = ["Recordable", "Recorder", "Recording", "Source", "record"]

_LIMIT = 10_000


class Recorder:
    """Takes the marks of one session's requests; `add` is called by its device thread.

    It holds the latest `limit` of them and counts all.
    """

    def __init__(self, limit: int) -> None:
        self.marks: deque[Marks] = deque(maxlen=limit)
        self.count = 0

    def begin(self, number: int, patient: bool) -> Marks:
        """Marks for a request that is submitted now; from any thread."""
        return Marks(number, patient)

    def add(self, marks: Marks) -> None:
        """A request has ended."""
        self.count += 1
        self.marks.append(marks)


class Source(Protocol):
    """Where a recording comes from: one open session."""

    @property
    def name(self) -> str:
        """What to call it in a timeline."""

    def start_recording(self, recorder: Recorder) -> Future[Sample]:
        """Note every request that is submitted from now on; gives a sample of the device's clock."""

    def stop_recording(self, recorder: Recorder) -> Future[Sample | None]:
        """Undo it; gives another sample, None where the device is gone."""


class Recordable(Protocol):
    """What can be recorded: an `aioascend.Session`."""

    def recording_source(self) -> Source:
        """The source of its recordings; raises where it is not open."""


class Recording:
    """The requests of a block of code; made by `record`."""

    def __init__(self, sessions: tuple[Recordable, ...], limit: int) -> None:
        self._sessions = sessions
        self._limit = limit
        self._tracks: list[_Track] = []
        self._entered = False

    def timeline(self) -> Timeline:
        """What has been noted so far, as frozen data; inside the block, or after it with the better clock."""
        requests = sorted(
            (
                request_times(marks, track.name, track.clock)
                for track in self._tracks
                for marks in tuple(track.recorder.marks)
            ),
            key=lambda one: one.done,
        )
        return Timeline(
            requests=tuple(requests),
            dropped=sum(track.recorder.count - len(track.recorder.marks) for track in self._tracks),
            clock_error={track.name: track.clock.error for track in self._tracks},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline as Chrome trace JSON, which https://ui.perfetto.dev opens."""
        self.timeline().save(path)

    async def __aenter__(self) -> Recording:
        self._enter_once()
        try:
            for session in self._sessions:
                track = _Track(session.recording_source(), self._limit)
                begun = track.source.start_recording(track.recorder)
                self._tracks.append(track)
                track.begun(await asyncio.wrap_future(begun))
        except BaseException:
            for track in self._tracks:
                track.source.stop_recording(track.recorder)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # All are stopped before any is waited for: a cancelled wait leaves none running.
        stopped = [track.source.stop_recording(track.recorder) for track in self._tracks]
        for track, future in zip(self._tracks, stopped, strict=True):
            track.ended(await asyncio.wrap_future(future))

    def __enter__(self) -> Recording:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("this would block the running event loop: use `async with record(...)`")
        self._enter_once()
        try:
            for session in self._sessions:
                track = _Track(session.recording_source(), self._limit)
                begun = track.source.start_recording(track.recorder)
                self._tracks.append(track)
                track.begun(begun.result())
        except BaseException:
            for track in self._tracks:
                track.source.stop_recording(track.recorder)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stopped = [track.source.stop_recording(track.recorder) for track in self._tracks]
        for track, future in zip(self._tracks, stopped, strict=True):
            track.ended(future.result())

    def _enter_once(self) -> None:
        if self._entered:
            raise RuntimeError("a recording can be entered once: make a new one with record()")
        self._entered = True


class _Track:
    """One session of a recording."""

    def __init__(self, source: Source, limit: int) -> None:
        self.source = source
        self.name = source.name
        self.recorder = Recorder(limit)
        self.clock = DeviceClock(Sample(0.0, 0, 0.0))

    def begun(self, sample: Sample) -> None:
        self.clock = DeviceClock(sample)

    def ended(self, sample: Sample | None) -> None:
        self.clock = DeviceClock(self.clock.start, sample)


def record(*sessions: Recordable, limit: int = _LIMIT) -> Recording:
    """Record every request of open sessions that is submitted inside the block, with the times of its stages.

    ``async with record(session) as recording: ...`` (or plain ``with`` in a script), then ``recording.timeline()``
    for the times and ``recording.save("trace.json")`` for Perfetto. The latest `limit` requests of each session are
    kept. The device is timed by events, six for every request that runs: a few microseconds each while recording, and
    none are made or recorded otherwise. A session can be in one recording at a time.

    Raises `ValueError` for a limit below 1, and what the session raises when it is not open.
    """
    if not sessions:
        raise ValueError("record: wanted at least one session")
    if limit < 1:
        raise ValueError(f"limit: wanted at least 1, given {limit!r}")
    return Recording(sessions, limit)
