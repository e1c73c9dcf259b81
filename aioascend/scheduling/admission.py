"""Who is let in, copied in and launched next: the queue of one session as a plain state machine.

No threads, loops or clocks: its owner tells it what happened, with the time where time matters, and asks `decide`
what to do. The same object runs live and in tests. An item passes through::

    offered ─► waiting ─► staging ─► staged ─► running ─► draining ─► gone
                          (copy into (pinned,  (on the    (its outputs are
                           pinned     waits for device)    being copied out)
                           memory)    a place)

Waiting items leave in the order of `Line`: by priority, within a priority as they came, and nobody waits for ever.
What is in pinned memory is launched in the order in which it left the queue, so that an urgent newcomer has at most the
items there, and those on the device, before it. Each item is handed out exactly once; one that may not be late
(`deadline`) is handed back as expired instead, as soon as it cannot be done in time any more.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .deadlines import Deadlines
from .line import SHARE, Line
from .pace import Pace

__all__ = ["NOTHING", "Admission", "Decision", "QueueFull", "Stale", "Where"]

T = TypeVar("T", bound=Hashable)


class QueueFull(Exception):
    """The queue has no room: `waiting` items of `waiting_bytes` bytes wait already.

    `retry_after` is the estimated time until what stands before the refused item has been started, in seconds; None
    before anything has finished.
    """

    def __init__(self, waiting: int, waiting_bytes: int, retry_after: float | None) -> None:
        super().__init__(waiting, waiting_bytes, retry_after)
        self.waiting = waiting
        self.waiting_bytes = waiting_bytes
        self.retry_after = retry_after


class Stale(Exception):
    """Something was told of an item that is not where it would have to be: what it held is another's by now."""


class Where(enum.Enum):
    """Where an item was when it was withdrawn, or expired."""

    WAITING = "waiting"  # removed: nothing was done for it
    STAGED = "staged"  # removed: the owner frees its pinned memory
    STAGING = "staging"  # its copy is under way: dropped when `staged` is told
    ELSEWHERE = "elsewhere"  # running, or gone


@dataclass(slots=True)
class Decision(Generic[T]):
    """What the owner must now do, in this order.

    Tell those in `expired` that they are too late, copy `stage` into pinned memory, launch `launch` on the lanes named.
    """

    expired: list[tuple[T, Where]] = field(default_factory=list)
    stage: list[T] = field(default_factory=list)
    launch: list[tuple[T, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.stage or self.launch or self.expired)


NOTHING: Decision[Any] = Decision()
"""What `decide` returns when there is nothing to do."""

_Entry = tuple[int, bool, bool]
"""What is known of an item that waits: its bytes, whether it is patient, whether it has pinned memory of its own."""


class Admission(Generic[T]):
    """The queue, the pinned input buffers and the places of one session.

    `lanes` model instances hold `depth` running items each; `staging` items may be in staging buffers at once, and as
    many in pinned memory of their own; `outlets` items a lane may occupy pinned output memory (running ones included).
    Of the impatient items no more than `max_waiting`, of no more than `max_waiting_bytes` together, may wait beyond
    those that can be staged at once; patient ones are not counted. One of `share` turns goes to the oldest, at least.

    With `at_once` the owner makes a copy on the spot when it is told to: an item counts as staged from then on, and may
    be launched by the same decision.
    """

    def __init__(
        self,
        *,
        lanes: int,
        depth: int,
        staging: int,
        outlets: int,
        max_waiting: int,
        max_waiting_bytes: int,
        share: int = SHARE,
        at_once: bool = False,
    ) -> None:
        self._at_once = at_once
        self.depth = depth
        self.outlets = outlets
        self.max_waiting = max_waiting
        self.max_waiting_bytes = max_waiting_bytes
        self._all_staging = self._free_staging = staging
        self._free_pinned = staging  # how many with pinned memory of their own may leave the queue
        self._entries: dict[T, _Entry] = {}  # of the waiting ones
        self._line: Line[T] = Line(share)
        self._in_line = self._line.arrived
        self._waiting_pinned = 0  # waiting ones with pinned memory of their own
        self._impatient = 0  # waiting ones that are not patient, and their bytes
        self._waiting_bytes = 0
        self._staging: OrderedDict[T, bool] = OrderedDict()  # as they left the queue; True: may be launched
        self._pinned: set[T] = set()  # those in `_staging` that needed no buffer
        self._dropped: set[T] = set()
        self._deadlines: Deadlines[T] = Deadlines()  # of all that were not launched
        self._watched = self._deadlines.live
        self._running: list[dict[T, float]] = [{} for _ in range(lanes)]  # with the time of the launch
        self._draining: list[set[T]] = [set() for _ in range(lanes)]
        self._lane: dict[T, int] = {}  # of the running and the draining
        self._held: set[int] = set()  # the lanes on which nothing is to be launched
        self._pace = Pace()

    # -- what happened ----------------------------------------------------------------------------------------------

    def offer(
        self,
        item: T,
        priority: int = 0,
        nbytes: int = 0,
        deadline: float | None = None,
        patient: bool = False,
        pinned: bool = False,
    ) -> None:
        """Queue an item of `nbytes` bytes of input; smaller priorities are more urgent.

        `patient` ones are never refused: their producer waits, which bounds them. `pinned` says that its inputs lie in
        pinned memory of its own, so that it needs no staging buffer. Raises `QueueFull`.
        """
        if item in self._entries or item in self._staging or item in self._lane:
            raise Stale(f"{item!r} was offered twice")
        if not patient:
            at_once = self._free_staging  # so many do not wait
            if (
                self._impatient >= self.max_waiting + at_once
                or self._waiting_bytes + nbytes > self.max_waiting_bytes + nbytes * at_once
            ):
                waiting = max(0, len(self._line) - at_once)
                raise QueueFull(waiting, self._waiting_bytes, self.retry_after(priority))
            self._impatient += 1
            self._waiting_bytes += nbytes
        self._entries[item] = (nbytes, patient, pinned)
        self._waiting_pinned += pinned
        self._line.add(item, priority)
        if deadline is not None:
            self._deadlines.add(item, deadline)

    def withdraw(self, item: T) -> Where:
        """Take an item out of the queue if it has not been launched, and say where it was."""
        self._deadlines.settle(item)
        if item in self._entries:
            self._line.remove(item)
            self._uncount(item)
            return Where.WAITING
        ready = self._staging.get(item)
        if ready is None:
            return Where.ELSEWHERE
        if ready:
            self._leave_staging(item)
            return Where.STAGED
        self._dropped.add(item)
        return Where.STAGING

    def staged(self, item: T) -> bool:
        """The item's copy is complete. False if it was withdrawn or has expired: the owner frees its pinned memory."""
        if self._staging.get(item) is not False:
            raise Stale(f"{item!r} is not being copied in")
        if item in self._dropped:
            self._leave_staging(item)
            return False
        self._staging[item] = True
        return True

    def staging_failed(self, item: T) -> None:
        """The item's copy failed: it is gone, and the owner frees its pinned memory."""
        if self._staging.get(item) is not False:
            raise Stale(f"{item!r} is not being copied in")
        self._leave_staging(item)

    def copy_failed(self, item: T) -> None:
        """With `at_once`: the copy that the last decision has asked for failed. The item is gone, not launched, and the
        owner frees its pinned memory.
        """
        lane = self._lane.pop(item, None)
        if lane is not None:
            del self._running[lane][item]
        elif self._staging.get(item):
            self._leave_staging(item)
        else:
            raise Stale(f"{item!r} has not just been copied in")

    def staging_freed(self) -> None:
        """A staging buffer is free again."""
        self._free_staging += 1

    def finished(self, item: T, now: float, *, drained: bool = False) -> None:
        """The device is done with the item; its pinned outputs are still in use unless `drained`."""
        lane = self._lane.get(item)
        launched_at = None if lane is None else self._running[lane].pop(item, None)
        if lane is None or launched_at is None:
            raise Stale(f"{item!r} is not running")
        if drained:
            del self._lane[item]
        else:
            self._draining[lane].add(item)
        self._pace.finished(now, launched_at)

    def drained(self, item: T) -> None:
        """The pinned outputs of a finished item are free again."""
        lane = self._lane.get(item)
        if lane is None or item not in self._draining[lane]:
            raise Stale(f"{item!r} holds no outputs")
        self._draining[lane].remove(item)
        del self._lane[item]

    def hold(self, lane: int, held: bool) -> None:
        """Launch nothing on `lane` while it is held."""
        if held:
            self._held.add(lane)
        else:
            self._held.discard(lane)

    def resize(self, *, depth: int, staging: int, outlets: int) -> None:
        """From now on these are its bounds; what is taken away is free."""
        more = staging - self._all_staging
        if more < 0 and self._staging:
            raise Stale(f"{len(self._staging)} items are in staging buffers, of which {-more} are to be taken away")
        self.depth, self.outlets, self._all_staging = depth, outlets, staging
        self._free_staging += more
        self._free_pinned += more

    def recall(self, running: Iterable[T], terms: Callable[[T], tuple[int, float | None]]) -> None:
        """What was on the device is not any more: `running` and what was staged stand at the head of the line again.

        No copy is under way. The pinned memory that any item had is gone: each needs a staging buffer from now on.
        Those that come back had been let in once, and are not counted again; `terms` tells their priority and deadline.
        """
        back = [*running, *self._staging]
        self._staging.clear()
        self._dropped.clear()
        self._pinned.clear()
        self._free_staging = self._free_pinned = self._all_staging
        for running_items, draining_items in zip(self._running, self._draining, strict=True):
            running_items.clear()
            draining_items.clear()
        self._lane.clear()
        self._held.clear()
        for item, (nbytes, patient, _) in self._entries.items():
            self._entries[item] = (nbytes, patient, False)
        self._waiting_pinned = 0
        for item in reversed(back):
            self._entries[item] = (0, True, False)
            priority, deadline = terms(item)
            self._line.put_back(item, priority)
            if deadline is not None:
                self._deadlines.add(item, deadline)

    def launched(self) -> list[T]:
        """The items on the device, each lane's in the order of launch."""
        return [item for running in self._running for item in running]

    def knows(self, item: T) -> bool:
        """Whether the item is anywhere between its offer and its end."""
        lane = self._lane.get(item)
        if lane is not None:
            return item in self._running[lane] or item in self._draining[lane]
        return item in self._staging or (item in self._entries and item in self._line)

    def purge(self, item: T) -> None:
        """Forget an item that an interrupted step has left half here and half there; `recall` counts places anew."""
        self._deadlines.settle(item)
        if item in self._line:
            self._line.remove(item)
        if item in self._staging:
            self._leave_staging(item)
        self._entries.pop(item, None)
        self._lane.pop(item, None)
        for running, draining in zip(self._running, self._draining, strict=True):
            running.pop(item, None)
            draining.discard(item)
        impatient = [nbytes for nbytes, patient, _ in self._entries.values() if not patient]
        self._impatient, self._waiting_bytes = len(impatient), sum(impatient)
        self._waiting_pinned = sum(pinned for _, _, pinned in self._entries.values())

    def seize(self, item: T, lane: int, now: float) -> None:
        """The owner takes a staging buffer and a place of `lane` for an item that is not in line."""
        self._free_staging -= 1
        self._running[lane][item] = now
        self._lane[item] = lane

    # -- what to do -------------------------------------------------------------------------------------------------

    def decide(self, now: float) -> Decision[T]:
        """Every scheduling decision that can be taken now, or `NOTHING`; the state already counts them as taken."""
        if not (self._in_line or self._staging):
            return NOTHING
        if self._at_once and (everybody := self._take_everybody(now)) is not None:
            return everybody
        decision: Decision[T] = Decision()
        if self._watched:
            for item in self._too_late(now):
                decision.expired.append((item, self.withdraw(item)))
        if self._at_once:
            self._take_straight(decision, now)
            if not (self._in_line or self._staging):
                return decision
        self._take_in(decision)
        while self._launch(decision, now):
            self._take_in(decision)  # a launch may have made room
        return decision if decision else NOTHING

    def _take_everybody(self, now: float) -> Decision[T] | None:
        """The decision where nobody has to wait, as ever but in overload, and there is one lane; None elsewhere."""
        count = len(self._in_line)
        if count > self._free_staging or self._staging or self._watched or self._waiting_pinned or self._held:
            return None
        running = self._running[0]
        places = len(running) + count
        if places > self.depth or places + len(self._draining[0]) > self.outlets or len(self._running) > 1:
            return None
        if not running:
            self._pace.resumed(now)
        items = self._line.take_all()
        launch = [(item, 0) for item in items]
        self._entries.clear()
        self._impatient = self._waiting_bytes = 0
        self._free_staging -= count
        self._lane.update(launch)
        running.update(dict.fromkeys(items, now))
        return Decision([], items, launch)

    def _take_straight(self, decision: Decision[T], now: float) -> None:
        """While nobody stands between the queue and a place: what `_take_in` and `_launch` would do, in one step."""
        if self._staging or self._waiting_pinned:
            return
        line = self._line
        for _ in range(min(len(line), self._free_staging)):
            lane = self._best_lane()
            if lane is None:
                return
            item = line.take_head()
            self._uncount(item)
            self._free_staging -= 1
            decision.stage.append(item)
            self._run(decision, item, lane, now)

    def _take_in(self, decision: Decision[T]) -> None:
        """Let out of the queue whom there is pinned memory for."""
        line = self._line
        while self._in_line:
            item = line.head()
            pinned = self._entries[item][2]
            if not (self._free_pinned if pinned else self._free_staging):
                return
            line.take(item)
            self._uncount(item)
            if pinned:
                self._free_pinned -= 1
                self._pinned.add(item)
            else:
                self._free_staging -= 1
                decision.stage.append(item)
            self._staging[item] = pinned or self._at_once

    def _launch(self, decision: Decision[T], now: float) -> bool:
        """Launch the first in pinned memory, if it is ready and there is a place."""
        if not self._staging:
            return False
        item, ready = next(iter(self._staging.items()))
        lane = self._best_lane() if ready else None
        if lane is None:
            return False
        self._leave_staging(item)
        self._run(decision, item, lane, now)
        return True

    def _run(self, decision: Decision[T], item: T, lane: int, now: float) -> None:
        if self._watched:
            self._deadlines.settle(item)
        if not any(self._running):
            self._pace.resumed(now)
        self._running[lane][item] = now
        self._lane[item] = lane
        decision.launch.append((item, lane))

    def _too_late(self, now: float) -> list[T]:
        """Those whose deadline has passed, or is nearer than any of the last 32 items was on the device.

        The latter would take a place only to be given up there. In lasting overload, where the queue is as long as
        callers are willing to wait, that would be nearly everybody, and the device would be busy without finishing
        anything in time. But where a lane has nothing else to do there is nothing to lose by trying one, and what comes
        of it corrects the figure.
        """
        deadlines = self._deadlines
        late = deadlines.expire(now)
        hopeless = deadlines.expire(now + self._pace.shortest)
        if hopeless and self._has_idle_lane() and len(late) + len(hopeless) == len(self._line) + len(self._staging):
            deadlines.add(*hopeless.pop())
        return [item for item, _ in late + hopeless]

    def _has_idle_lane(self) -> bool:
        return any(not running and lane not in self._held for lane, running in enumerate(self._running))

    def _uncount(self, item: T) -> None:
        nbytes, patient, pinned = self._entries.pop(item)
        self._waiting_pinned -= pinned
        if not patient:
            self._impatient -= 1
            self._waiting_bytes -= nbytes

    def _leave_staging(self, item: T) -> None:
        del self._staging[item]
        self._dropped.discard(item)
        if self._watched:
            self._deadlines.settle(item)
        if item in self._pinned:
            self._pinned.remove(item)
            self._free_pinned += 1

    def _best_lane(self) -> int | None:
        """The lane with the fewest running items that has a place and a pinned output buffer, if any."""
        best, fewest = None, self.depth
        for lane, running in enumerate(self._running):
            count = len(running)
            if count < fewest and count + len(self._draining[lane]) < self.outlets and lane not in self._held:
                best, fewest = lane, count
        return best

    # -- what it looks like -----------------------------------------------------------------------------------------

    def retry_after(self, priority: int = 0) -> float | None:
        """About when what stands before a newcomer of `priority` will have been started, in seconds from now.

        At the pace of the last 32 completions; None before the first.
        """
        interval = self._pace.interval
        return None if interval is None else interval * max(1, len(self._staging) + self._line.ahead(priority))

    @property
    def waiting(self) -> int:
        """Items that hold no memory of ours yet."""
        return len(self._line)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of input of the waiting items that are not patient."""
        return self._waiting_bytes

    @property
    def staging(self) -> int:
        """Items in pinned input memory that have not been launched."""
        return len(self._staging)

    @property
    def copying(self) -> int:
        """Items whose inputs are being copied into pinned memory."""
        return sum(not ready for ready in self._staging.values())

    @property
    def running(self) -> int:
        """Items on the device."""
        return sum(map(len, self._running))

    @property
    def draining(self) -> int:
        """Finished items whose outputs are being copied out."""
        return sum(map(len, self._draining))

    @property
    def idle(self) -> bool:
        """Nothing is waiting, staged, running or being copied out."""
        return not (self._in_line or self._staging or self._lane)

    def pending(self) -> list[T]:
        """Everything that has not been launched: what is in pinned memory, then the others as they came."""
        return [*self._staging, *self._line]
