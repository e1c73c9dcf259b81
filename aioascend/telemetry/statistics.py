"""What a session has done and is doing, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counters", "DeviceStatistics", "MemoryStatistics", "PoolStatistics", "SessionStatistics"]


@dataclass
class Counters:
    """Totals since a session was opened; written by the device thread only."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    refused: int = 0


@dataclass(frozen=True)
class DeviceStatistics:
    """A snapshot of one device.

    `state` is ``"healthy"``, ``"suspect"`` (a stream makes no progress and is being aborted), ``"rebuilding"`` (its
    context is made anew; requests wait), ``"lost"`` (it does not answer; requests fail at once) or ``"probing"`` (a
    lost one is being tried). `generation` counts its contexts, `rebuilds` those that replaced another one; `last_error`
    is the latest failure that reached beyond a request, None when there was none.
    """

    name: str
    state: str
    generation: int
    rebuilds: int
    last_error: str | None


@dataclass(frozen=True)
class PoolStatistics:
    """A snapshot of one memory pool; sizes are bytes.

    `used` bytes are lent and `idle` ones wait for the next to ask, in `blocks` blocks altogether; `high_water` is the
    most that both were at once. `hits` requests were served without a call of the driver, `misses` were allocated.
    `fragmentation` is the part of `used` that nobody asked for: what the size classes round up, and larger blocks that
    stood in.
    """

    used: int
    idle: int
    high_water: int
    blocks: int
    hits: int
    misses: int
    fragmentation: int

    @property
    def hit_rate(self) -> float:
        """The share of requests that were served without a call of the driver; 0 before the first."""
        return self.hits / (self.hits + self.misses) if self.hits else 0.0


@dataclass(frozen=True)
class MemoryStatistics:
    """A snapshot of what aioascend has allocated on one device: `device` memory, and `pinned` host memory for it."""

    device: PoolStatistics
    pinned: PoolStatistics


@dataclass(frozen=True)
class SessionStatistics:
    """A snapshot of one session.

    `waiting` requests are queued (those of `infer` and `run` with `waiting_bytes` bytes of input), `staging` ones lie
    in pinned memory, `running` ones are on the device, whether or not somebody still waits for them, `draining` ones
    are being copied out. `completed`, `failed`, `cancelled` (given up by their caller, or by a close that did not
    drain), `expired` (too late for their timeout) and `refused` (queue full) count requests since the session was
    opened: each is in one of them, once its memory is free again. What was no request to begin with (`InvalidInput`,
    `StaleLease`, `SessionClosed` at the door) is in none. `repeated` counts the runs that were made again
    because a failure could not be told from a neighbour's, or had killed the context under them. `leased` pinned inputs
    are in callers' hands, and `leased_results` pinned results; `device_results` are alive on the device. `devices`
    tells how the session's devices are, once it was opened, `depth_reason` why the depth is what it is, and `memory`
    what is allocated on the device by all who use it in this process.
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
    leased_results: int
    device_results: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    refused: int
    repeated: int
    devices: tuple[DeviceStatistics, ...] = ()
    depth_reason: str = "it was given"
    memory: MemoryStatistics | None = None
