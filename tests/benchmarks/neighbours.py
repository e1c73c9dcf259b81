"""What other programs do to this machine's CPUs meanwhile, as far as the system tells (Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["Neighbours", "busy_seconds"]

_IDLE = (3, 4)  # idle and iowait, of user, nice, system, idle, iowait, irq, softirq, steal
_KNOWN = 8  # guests are in user and nice already


def busy_seconds(stat: str, cpus: set[int], tick: int) -> float:
    """Seconds that these CPUs have worked, for whomever, by the text of /proc/stat with `tick` parts a second."""
    busy = 0
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.removeprefix("cpu").isdecimal() and int(name.removeprefix("cpu")) in cpus:
            busy += sum(int(field) for index, field in enumerate(fields[:_KNOWN]) if index not in _IDLE)
    return busy / tick


class Neighbours:
    """How many of our CPUs others have used since it was made, or since it was asked last."""

    def __init__(self) -> None:
        self._before = self._now()

    def cores(self) -> float:
        """Cores' worth of work of others in the mean; 0 where the system does not tell."""
        before, self._before = self._before, self._now()
        wall, busy, ours = (after - since for after, since in zip(self._before, before, strict=True))
        return max(0.0, (busy - ours) / wall) if busy and wall > 0 else 0.0

    def _now(self) -> tuple[float, float, float]:
        try:
            stat = Path("/proc/stat").read_text()
        except OSError:
            return time.monotonic(), 0.0, 0.0
        busy = busy_seconds(stat, os.sched_getaffinity(0), os.sysconf("SC_CLK_TCK"))
        return time.monotonic(), busy, time.process_time()
