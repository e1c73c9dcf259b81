"""A recording as frozen data: when each request was where, and the split of its time into stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .clocks import DeviceClock
from .marks import Marks
from .summaries import Summary, summarize

if TYPE_CHECKING:
    import os

__all__ = ["STAGES", "RequestTimes", "Span", "Timeline", "request_times"]

STAGES = ("queue", "copy_in", "compute", "copy_out", "wake_up")


class Span(NamedTuple):
    """From one time to another, in seconds of `time.perf_counter`."""

    start: float
    end: float

    @property
    def duration(self) -> float:
        """Its length in seconds."""
        return self.end - self.start


@dataclass(frozen=True)
class RequestTimes:
    """When one request was where; times are seconds of the host's `time.perf_counter`.

    `h2d`, `compute` and `d2h` were measured on the device by events and are None for a request that did not get
    there, or had no events left. `staging` is the copy into pinned memory, None for a request that was written there
    by its caller. `told`: the runtime knew that the device was done; `done`: the outcome was there; `woken`: the
    caller went on (for a ticket the same as `done`: when it is awaited is its owner's affair).
    """

    number: int
    session: str
    instance: int
    outcome: str
    submitted: float
    staging: Span | None
    launched: float | None
    h2d: Span | None
    execute: Span | None
    d2h: Span | None
    told: float | None
    done: float
    woken: float

    @property
    def total(self) -> float:
        """Seconds from the submission until the caller went on: the sum of the five stages."""
        return self.woken - self.submitted

    @property
    def copy_in(self) -> float:
        """Seconds of copying in: into pinned memory, and to the device."""
        return _length(self.staging) + _length(self.h2d)

    @property
    def compute(self) -> float:
        """Seconds of the model's run on the device."""
        return _length(self.execute)

    @property
    def copy_out(self) -> float:
        """Seconds of copying out: from the device, and out of pinned memory."""
        return _length(self.d2h) + (self.done - self.told if self.told is not None else 0.0)

    @property
    def wake_up(self) -> float:
        """Seconds from the end of the work to who waits for it: device to runtime, runtime to caller."""
        hop = self.told - self.d2h.end if self.d2h is not None and self.told is not None else 0.0
        return max(0.0, hop) + self.woken - self.done

    @property
    def queue(self) -> float:
        """Seconds of waiting: for the device thread, a buffer, a place, or the request before on a stream."""
        return max(0.0, self.total - self.copy_in - self.compute - self.copy_out - self.wake_up)


@dataclass(frozen=True)
class Timeline:
    """What a recording holds.

    `requests` are in the order in which they ended, the latest `limit` of them; `dropped` counts those before.
    `clock_error` says, for each session, by how many seconds device times may be off against host times.
    """

    requests: tuple[RequestTimes, ...]
    dropped: int
    clock_error: dict[str, float]

    def completed(self) -> tuple[RequestTimes, ...]:
        """The requests that have outputs and were timed on the device."""
        return tuple(one for one in self.requests if one.outcome == "completed" and one.execute is not None)

    def split(self, percents: Sequence[float] = (50, 90, 95, 99)) -> dict[str, Summary]:
        """Seconds spent in each stage (`queue`, `copy_in`, `compute`, `copy_out`, `wake_up`, and their `total`).

        Empty where no request was completed.
        """
        completed = self.completed()
        found = {stage: summarize((getattr(one, stage) for one in completed), percents) for stage in (*STAGES, "total")}
        return {stage: summary for stage, summary in found.items() if summary is not None}

    def streams(self, percents: Sequence[float] = (50, 90, 95, 99)) -> dict[str, Summary]:
        """Seconds of the work on each stream alone: `h2d`, `compute`, `d2h`; empty where nothing was completed."""
        completed = self.completed()
        spans = {"h2d": "h2d", "compute": "execute", "d2h": "d2h"}
        found = {
            name: summarize((_length(getattr(one, field)) for one in completed), percents)
            for name, field in spans.items()
        }
        return {name: summary for name, summary in found.items() if summary is not None}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as Chrome trace JSON, which https://ui.perfetto.dev opens."""
        from .chrome import trace_json  # here: who only times need not build traces

        Path(path).write_text(trace_json(self), encoding="utf-8")


def _length(span: Span | None) -> float:
    return span.duration if span is not None else 0.0


def request_times(marks: Marks, session: str, clock: DeviceClock) -> RequestTimes:
    """The frozen form of what was noted of one request."""
    spans: list[Span | None] = [None, None, None]
    if marks.device_us is not None:
        at = [clock.host(us) for us in marks.device_us]
        spans = [Span(at[index], at[index + 1]) for index in (0, 2, 4)]
    done = marks.done
    woken = marks.woken if marks.woken and not marks.patient else done
    return RequestTimes(
        number=marks.number,
        session=session,
        instance=marks.instance,
        outcome=marks.outcome,
        submitted=marks.submitted,
        staging=Span(marks.copied_from, marks.copied_to) if marks.copied_to else None,
        launched=marks.launched or None,
        h2d=spans[0],
        execute=spans[1],
        d2h=spans[2],
        told=marks.told or None,
        done=done,
        woken=max(woken, done),
    )
