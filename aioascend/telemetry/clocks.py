"""The clock of a device against the host's.

Events carry device microseconds (`event_get_timestamp`, pyACL reference §7) whose origin nobody states. A *sample* is
an event that was recorded on an idle stream between two readings of the host's clock: the true time lies between them,
so half their distance is the sample's error. The shortest of several is taken, at the beginning and at the end of a
recording; between the two the clocks are taken to drift evenly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["DeviceClock", "Sample", "best"]

_RESOLUTION = 1e-6
"""Timestamps are whole microseconds."""


@dataclass(frozen=True)
class Sample:
    """Device time `device_us` (microseconds) was between the host times `before` and `after` (seconds)."""

    before: float
    device_us: int
    after: float

    @property
    def middle(self) -> float:
        """The host time that the device time is taken to be, in seconds."""
        return (self.before + self.after) / 2

    @property
    def error(self) -> float:
        """By how much that may be wrong, in seconds."""
        return (self.after - self.before) / 2 + _RESOLUTION


def best(samples: Iterable[Sample]) -> Sample:
    """The sample with the smallest error."""
    return min(samples, key=lambda sample: sample.error)


@dataclass(frozen=True)
class DeviceClock:
    """Turns device microseconds into seconds of the host's `time.perf_counter`."""

    start: Sample
    end: Sample | None = None

    @property
    def error(self) -> float:
        """How far a converted time may be off, in seconds, clocks drifting evenly."""
        return max(self.start.error, self.end.error) if self.end is not None else self.start.error

    def host(self, device_us: int) -> float:
        """The host time of a device time."""
        start, end = self.start, self.end
        elapsed = device_us - start.device_us
        rate = 1e-6
        if end is not None and end.device_us > start.device_us:
            measured = (end.middle - start.middle) / (end.device_us - start.device_us)
            # Two samples close together say more about their own errors than about the drift.
            if abs(measured / 1e-6 - 1) < 1e-3:
                rate = measured
        return start.middle + elapsed * rate
