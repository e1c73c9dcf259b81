"""How fast a device works: what was seen lately, for estimates."""

from __future__ import annotations

from collections import deque

__all__ = ["Pace"]

_WINDOW = 32


class Pace:
    """The time between completions while there is work, and the shortest time on the device, of the last 32 items."""

    def __init__(self) -> None:
        self._intervals: deque[float] = deque(maxlen=_WINDOW)
        self._durations: deque[float] = deque(maxlen=_WINDOW)
        self._shortest: float | None = 0.0
        self._since = 0.0  # when the device turned to the item that will be the next to finish

    def resumed(self, now: float) -> None:
        """An item is launched and nothing ran before: the pause until now is no one's service time."""
        self._since = now

    def finished(self, now: float, launched_at: float) -> None:
        """An item that was launched at `launched_at` is done."""
        self._intervals.append(now - self._since)
        self._durations.append(now - launched_at)
        self._shortest = None
        self._since = now

    @property
    def interval(self) -> float | None:
        """The mean time between two completions in seconds, None before the first."""
        return sum(self._intervals) / len(self._intervals) if self._intervals else None

    @property
    def shortest(self) -> float:
        """The shortest time from launch to end in seconds, 0 before anything is known."""
        if self._shortest is None:
            self._shortest = min(self._durations) if len(self._durations) == _WINDOW else 0.0
        return self._shortest
