"""What a session has done and is doing, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counters", "SessionStatistics"]


@dataclass
class Counters:
    """Totals since a session was opened; written by the device thread only."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    refused: int = 0


@dataclass(frozen=True)
class SessionStatistics:
    """A snapshot of one session.

    `waiting` requests are queued, `staging` ones lie in pinned memory, `running` ones are on the device, `draining`
    ones are being copied out. `completed`, `failed` (on the device), `cancelled` (given up by their caller) and
    `refused` (queue full) count requests since the session was opened, `repeated` the runs that were made again, alone,
    because a failure could not be told from a neighbour's. `leased` pinned inputs are in callers' hands.
    """

    state: str
    device: str
    depth: int
    instances: int
    waiting: int
    staging: int
    running: int
    draining: int
    leased: int
    completed: int
    failed: int
    cancelled: int
    refused: int
    repeated: int
