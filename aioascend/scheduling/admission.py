"""Who is copied in and who is launched next: the queue of one session as a plain state machine.

No threads, loops or clocks: its owner tells it what happened, with the time where time matters, and asks `decide`
what to do. The same object runs live and in tests. An item passes through::

    offered ─► waiting ─► staging ─► staged ─► running ─► draining ─► gone
                          (copy into (pinned,  (on the    (its outputs are
                           pinned     waits for device)    being copied out)
                           memory)    a place)

Items are launched in the order in which they were offered, and each is handed out exactly once.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Admission", "Decision", "QueueFull", "Where"]

T = TypeVar("T", bound=Hashable)


class QueueFull(Exception):
    """`max_waiting` items wait already; `retry_after` is the estimated wait for a free place, in seconds."""

    def __init__(self, waiting: int, retry_after: float | None) -> None:
        super().__init__(waiting, retry_after)
        self.waiting = waiting
        self.retry_after = retry_after


class Where(enum.Enum):
    """Where an item was when it was withdrawn."""

    WAITING = "waiting"  # removed: nothing was done for it
    STAGED = "staged"  # removed: the owner frees its pinned memory
    STAGING = "staging"  # its copy is under way: dropped when `staged` is told
    ELSEWHERE = "elsewhere"  # running, or gone


@dataclass(frozen=True)
class Decision(Generic[T]):
    """What the owner must now do: copy `stage` into pinned memory, launch `launch` on the lanes named."""

    stage: list[T] = field(default_factory=list)
    launch: list[tuple[T, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.stage or self.launch)


class Admission(Generic[T]):
    """The queue, the pinned input buffers and the places of one session.

    `lanes` model instances hold `depth` running items each; `staging` items may be in pinned input memory at once;
    `outlets` items a lane may occupy pinned output memory (running ones included). Of the impatient items no more than
    `max_waiting` may wait beyond those that can be staged at once; patient ones are not counted.
    """

    def __init__(self, *, lanes: int, depth: int, staging: int, outlets: int, max_waiting: int) -> None:
        self.depth = depth
        self.outlets = outlets
        self.max_waiting = max_waiting
        self._free_staging = staging
        self._waiting: dict[T, bool] = {}  # in order of arrival; True: already in pinned memory of its own
        self._patient: set[T] = set()  # those of the waiting ones that are patient
        self._staging: dict[T, bool] = {}  # in order of arrival; True: staged, may be launched
        self._dropped: set[T] = set()
        self._running = [0] * lanes
        self._draining = [0] * lanes
        self._held: set[int] = set()
        self._finish_times: deque[float] = deque(maxlen=33)

    # -- what happened ----------------------------------------------------------------------------------------------

    def offer(self, item: T, *, patient: bool = False, pinned: bool = False) -> None:
        """Queue an item. `patient` ones are never refused: their producer waits, which bounds them.

        `pinned` says that its inputs lie in pinned memory of its own, so that it needs no staging buffer. Raises
        `QueueFull`.
        """
        if patient:
            self._patient.add(item)
        elif len(self._waiting) - len(self._patient) >= self.max_waiting + self._free_staging:
            raise QueueFull(len(self._waiting), self.retry_after())
        self._waiting[item] = pinned

    def withdraw(self, item: T) -> Where:
        """Take an item out of the queue if it has not been launched, and say where it was."""
        if self._waiting.pop(item, None) is not None:
            self._patient.discard(item)
            return Where.WAITING
        ready = self._staging.get(item)
        if ready is None:
            return Where.ELSEWHERE
        if ready:
            del self._staging[item]
            return Where.STAGED
        self._dropped.add(item)
        return Where.STAGING

    def staged(self, item: T) -> bool:
        """The item's copy is complete. False if it was withdrawn meanwhile: the owner frees its pinned memory."""
        if item in self._dropped:
            self._dropped.discard(item)
            del self._staging[item]
            return False
        self._staging[item] = True
        return True

    def staging_failed(self, item: T) -> None:
        """The item's copy failed: it is gone, and the owner frees its pinned memory."""
        self._dropped.discard(item)
        del self._staging[item]

    def staging_freed(self) -> None:
        """A pinned input buffer is free again."""
        self._free_staging += 1

    def finished(self, lane: int, now: float) -> None:
        """The device is done with one item of `lane`; its pinned outputs are still in use."""
        self._running[lane] -= 1
        self._draining[lane] += 1
        self._finish_times.append(now)

    def drained(self, lane: int) -> None:
        """The pinned outputs of one finished item of `lane` are free again."""
        self._draining[lane] -= 1

    def hold(self, lane: int, held: bool) -> None:
        """Launch nothing on `lane` while it is held."""
        if held:
            self._held.add(lane)
        else:
            self._held.discard(lane)

    # -- what to do -------------------------------------------------------------------------------------------------

    def decide(self) -> Decision[T]:
        """Every scheduling decision that can be taken now; the state already counts them as taken."""
        decision: Decision[T] = Decision()
        while self._waiting:
            item, pinned = next(iter(self._waiting.items()))
            if not pinned:
                if not self._free_staging:
                    break
                self._free_staging -= 1
                decision.stage.append(item)
            del self._waiting[item]
            self._patient.discard(item)
            self._staging[item] = pinned
        while self._staging:
            item, ready = next(iter(self._staging.items()))
            lane = self._best_lane()
            if not ready or lane is None:
                break
            del self._staging[item]
            self._running[lane] += 1
            decision.launch.append((item, lane))
        return decision

    def _best_lane(self) -> int | None:
        """The lane with the fewest running items that has a place and a pinned output buffer, if any."""
        free = [
            (running, lane)
            for lane, running in enumerate(self._running)
            if running < self.depth and running + self._draining[lane] < self.outlets and lane not in self._held
        ]
        return min(free)[1] if free else None

    # -- what it looks like -----------------------------------------------------------------------------------------

    def retry_after(self) -> float | None:
        """The mean time between recent completions in seconds: when the next place is likely to be free."""
        times = self._finish_times
        if len(times) < 2:
            return None
        return (times[-1] - times[0]) / (len(times) - 1)

    @property
    def waiting(self) -> int:
        """Items that hold no memory of ours yet."""
        return len(self._waiting)

    @property
    def staging(self) -> int:
        """Items in pinned input memory that have not been launched."""
        return len(self._staging)

    @property
    def running(self) -> int:
        """Items on the device."""
        return sum(self._running)

    @property
    def draining(self) -> int:
        """Finished items whose outputs are being copied out."""
        return sum(self._draining)

    @property
    def idle(self) -> bool:
        """Nothing is waiting, staged, running or being copied out."""
        return not (self._waiting or self._staging or self.running or self.draining)

    def pending(self) -> list[T]:
        """Everything that has not been launched, in order."""
        return [*self._staging, *self._waiting]
