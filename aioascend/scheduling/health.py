"""What becomes of a device after a fault: a plain state machine, told what happened and when, that says what to do.

::

    healthy ─► suspect ─────► lost ─► probing ─► rebuilding ─► healthy
       │       (a stream      ▲  ▲       │           │
       │        hangs)        │  └───────┴───────────┘ failed: the next probe comes later
       └─► rebuilding ────────┘
           (its context is dead)

No threads, no clock, no ACL: the owner does each `Step` and tells how it ended. Probes of a lost device go on for as
long as somebody uses it, at growing and bounded intervals: a device may come back after an operator has reset it.
"""

from __future__ import annotations

import enum

__all__ = ["Health", "HealthState", "Severity", "Step"]


class HealthState(enum.Enum):
    """Where a device stands."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"  # a stream makes no progress and is being aborted
    REBUILDING = "rebuilding"  # its context is torn down and made anew; requests wait
    LOST = "lost"  # it does not answer; requests fail at once until a probe succeeds
    PROBING = "probing"  # it is being asked whether it is back


class Severity(enum.IntEnum):
    """How far a failure reaches."""

    TASK = 0  # what ran, and nothing else
    CONTEXT = 1  # everything in the context: it has to be rebuilt
    DEVICE = 2  # the device does not answer


class Step(enum.Enum):
    """What the owner must do now."""

    ABORT = "abort"  # abort the streams that hang; ends with `aborted`
    REBUILD = "rebuild"  # make the context anew; ends with `rebuilt` or `failed`
    QUARANTINE = "quarantine"  # fail every request and give back what can be; then wait for `due`
    PROBE = "probe"  # make a context and try it; ends with `answered`, then like a rebuild, or with `failed`


class Health:
    """The health of one device; times are seconds of any steady clock.

    `first` is the time from a loss to the first probe; every probe that fails doubles it, up to `longest`. After
    `patience` rebuilds in a row without a request that worked between them the device counts as lost.
    """

    def __init__(self, *, first: float = 0.25, longest: float = 30.0, patience: int = 8) -> None:
        self.state = HealthState.HEALTHY
        self.rebuilds = 0
        self.probes = 0
        self.next_probe: float | None = None
        self._first = first
        self._longest = longest
        self._patience = patience
        self._delay = first
        self._worked = 0  # requests that had worked when the last fault was told
        self._fruitless = 0  # faults since one worked

    @property
    def serves(self) -> bool:
        """Whether requests may be queued: they run now, or after the rebuild."""
        return self.state not in (HealthState.LOST, HealthState.PROBING)

    def fault(self, severity: Severity, now: float, worked: int) -> Step | None:
        """A failure was seen; `worked` counts the requests that have ever worked on the device."""
        if severity is Severity.TASK or self.state not in (HealthState.HEALTHY, HealthState.SUSPECT):
            return None  # whatever is under way will find out for itself
        self._fruitless = 1 if worked > self._worked else self._fruitless + 1
        if worked > self._worked:
            self._delay = self._first
        self._worked = worked
        if severity is Severity.DEVICE or self._fruitless > self._patience:
            return self._lose(now)
        self.state = HealthState.REBUILDING
        return Step.REBUILD

    def stalled(self, *, draining: bool = False) -> Step | None:
        """A stream makes no progress; `draining` says that a rebuild was asked for and waits for what runs."""
        if self.state is not HealthState.HEALTHY and not (draining and self.state is HealthState.REBUILDING):
            return None
        self.state = HealthState.SUSPECT
        return Step.ABORT

    def aborted(self, worked: bool, now: float) -> Step | None:
        """The streams that hung are free again, or cannot be freed."""
        if self.state is not HealthState.SUSPECT:
            return None
        if worked:
            self.state = HealthState.HEALTHY
            return None
        return self._lose(now)

    def ask(self) -> Step | None:
        """Somebody wants the context rebuilt; None when that is under way."""
        if self.state is HealthState.HEALTHY:
            self.state = HealthState.REBUILDING
            return Step.REBUILD
        if self.state is HealthState.LOST:
            return self._probe()
        return None

    def due(self, now: float) -> Step | None:
        """Time has passed: whether it is time for a probe."""
        if self.state is HealthState.LOST and self.next_probe is not None and now >= self.next_probe:
            return self._probe()
        return None

    def answered(self) -> None:
        """The probe succeeded: what was there is being restored."""
        if self.state is HealthState.PROBING:
            self.state = HealthState.REBUILDING

    def rebuilt(self) -> None:
        """The device serves again."""
        if self.state in (HealthState.REBUILDING, HealthState.PROBING):
            self.state = HealthState.HEALTHY
            self.rebuilds += 1

    def failed(self, now: float) -> Step | None:
        """The rebuild or the probe failed."""
        if self.state in (HealthState.REBUILDING, HealthState.PROBING):
            return self._lose(now)
        return None

    def _probe(self) -> Step:
        self.state = HealthState.PROBING
        self.probes += 1
        self.next_probe = None
        return Step.PROBE

    def _lose(self, now: float) -> Step:
        self.state = HealthState.LOST
        self.next_probe = now + self._delay
        self._delay = min(2 * self._delay, self._longest)
        return Step.QUARANTINE
