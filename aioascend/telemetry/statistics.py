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
    expired: int = 0
    refused: int = 0


@dataclass(frozen=True)
class SessionStatistics:
    """A snapshot of one session.

    `waiting` requests are queued (those of `infer` and `run` with `waiting_bytes` bytes of input), `staging` ones lie
    in pinned memory, `running` ones are on the device, whether or not somebody still waits for them, `draining` ones
    are being copied out. `completed`, `failed`, `cancelled` (given up by their caller, or by a close that did not
    drain), `expired` (too late for their timeout) and `refused` (queue full) count requests since the session was
    opened: each is in one of them, once its memory is free again. `repeated` counts the runs that were made again,
    alone, because a failure could not be told from a neighbour's. `leased` pinned inputs are in callers' hands.
    """

    state: str
    device: str
    depth: int
    instances: int
    waiting: int
    waiting_bytes: int
    staging: int
    running: int
    draining: int
    leased: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    refused: int
    repeated: int
