"""What comes before what: vector clocks over streams, events, callbacks and the host.

No threads, no memory, no clock of the wall: a *step* is something that was put on a stream (an access, a record, a
wait, a reset, a callback), and `Order` is told of steps in the order in which they were submitted, and of what the host
has learned. The order of two steps follows from what the program asked for, never from when they happened to run:

* steps of one stream are in order;
* what the host did before a step was submitted comes before it;
* a wait comes after the record that it waits for, and so does everything behind it on its stream;
* what the host has learned to be complete (by waiting, by asking, by being called back) comes before everything that is
  submitted, or done by the host, after that.

All host threads are one participant. How they hand work to each other (locks, queues) cannot be seen from an ``acl``
module, so what one of them has learned counts for all: a race between two of them that rests on nothing but that is not
found, and a correct program is never accused.

A wait for a legacy event may come before its record (reference §7). Steps behind such a wait are kept back until it is
known what they come after.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

Clock = dict[int, int]
"""For streams by number: how many of their steps are known to be done. Never changed once it is in use."""

Access = tuple[Any, int, int, bool]
Noted = tuple[int, str, str, object]
"""For explanations: a record's place on its stream, the event's name, the stream's, and where the program made it."""

_NOTHING: Clock = {}
_MOST_RECORDS = 64


class Line:
    """The steps of one stream, which are numbered from 1.

    `clock` is what its steps from now on come after, beside what the host knows. `held` are steps of which that is not
    known yet. `lately` and `awaited` are for explanations: its latest records, and the record of every other stream
    that it waited for last.
    """

    __slots__ = ("__weakref__", "awaited", "clock", "held", "lately", "length", "name", "number", "void")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.length = 0
        self.clock = _NOTHING
        self.held: deque[Step] | None = None
        self.lately: deque[Noted] = deque(maxlen=8)
        self.awaited: dict[int, Noted] = {}
        # the latest wait that did nothing, as its event had no record
        self.void: Noted | None = None


class Step:
    """A place on a line. `host` is what the host knew when it was submitted, `at` is 0 until its order is known."""

    __slots__ = ("at", "clock", "host", "line", "number")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.number = line.number
        self.at = 0
        self.clock = _NOTHING
        self.host = _NOTHING

    def apply(self, order: Order) -> bool:
        """Take the next place; False when that has to wait for a record."""
        line = self.line
        line.length = self.at = line.length + 1
        self.clock = line.clock
        return True

    def precedes(self, other: Step) -> bool:
        """Whether this is certain to be done before `other` begins. Both have their places."""
        number, at = self.number, self.at
        return (
            (number == other.number and at <= other.at)
            or at <= other.host.get(number, 0)
            or at <= other.clock.get(number, 0)
        )


class Mark(Step):
    """A record of an event. `name` and `where` are for explanations."""

    __slots__ = ("flag", "name", "waiting", "where")

    def __init__(self, line: Line, name: str = "", where: object = None, flag: Flag | None = None) -> None:
        super().__init__(line)
        self.name = name
        self.where = where
        self.flag = flag
        # lines held up by waits for this very record, which is held up itself
        self.waiting: list[Line] = []

    def apply(self, order: Order) -> bool:
        """Take a place, and let go what waited for it."""
        super().apply(order)
        self.line.lately.append(self.noted())
        if self.waiting:
            order.wake(self.waiting)
        if self.flag is not None:
            self.flag.records.append(self)
            del self.flag.records[:-_MOST_RECORDS]
            if self.flag.waiting:
                order.wake(self.flag.waiting)
        return True

    def noted(self) -> Noted:
        """For explanations."""
        return self.at, self.name, self.line.name, self.where


class Await(Step):
    """A wait for a record that has been submitted (plain and ex flavour)."""

    __slots__ = ("mark",)

    def __init__(self, line: Line, mark: Mark) -> None:
        super().__init__(line)
        self.mark = mark

    def apply(self, order: Order) -> bool:
        """Come after the record."""
        mark = self.mark
        if not mark.at:
            mark.waiting.append(self.line)
            return False
        if mark.number != self.number and mark.at > self.host.get(mark.number, 0):
            # what the host knew at the record it knew at the wait
            self.line.clock = joined(self.line.clock, self.host, mark.clock, {mark.number: mark.at})
            self.line.awaited[mark.number] = mark.noted()
        return super().apply(order)


class Flag:
    """The device-side flag of a legacy event: a record raises it, a reset clears it, a wait passes while it is up."""

    __slots__ = ("clears", "records", "waiting")

    def __init__(self) -> None:
        self.records: list[Mark] = []
        self.clears: list[Step] = []
        self.waiting: list[Line] = []

    def raised_before(self, wait: Step) -> list[Mark]:
        """The records that may be what lets `wait` pass: those that no reset is certain to have cleared before it."""
        clears = [clear for clear in self.clears if clear.precedes(wait)]
        return [mark for mark in self.records if not any(mark.precedes(clear) for clear in clears)]

    def forget(self, known: Clock) -> None:
        """Drop what was cleared as far as the host knows."""
        settled = [clear for clear in self.clears if clear.at <= known.get(clear.number, 0)]
        if settled:
            self.records = [mark for mark in self.records if not any(mark.precedes(clear) for clear in settled)]
            self.clears = [clear for clear in self.clears if clear not in settled]
        del self.clears[:-_MOST_RECORDS]


class FlagAwait(Step):
    """A wait for a legacy event, which passes whichever record has raised it."""

    __slots__ = ("flag",)

    def __init__(self, line: Line, flag: Flag) -> None:
        super().__init__(line)
        self.flag = flag

    def apply(self, order: Order) -> bool:
        """Come after what all records that may let it pass come after: a record that was not reset orders nothing."""
        line = self.line
        # the place that it will have
        self.at, self.clock = line.length + 1, line.clock
        marks = self.flag.raised_before(self)
        self.at = 0
        if not marks:
            if line not in self.flag.waiting:
                self.flag.waiting.append(line)
            return False
        if len(marks) == 1:
            line.awaited[marks[0].number] = marks[0].noted()
        line.clock = joined(line.clock, self.host, _meet(marks))
        line.clock.pop(line.number, None)
        return super().apply(order)


class FlagClear(Step):
    """A reset of a legacy event."""

    __slots__ = ("flag",)

    def __init__(self, line: Line, flag: Flag) -> None:
        super().__init__(line)
        self.flag = flag

    def apply(self, order: Order) -> bool:
        """Clear what was raised before."""
        super().apply(order)
        self.flag.clears.append(self)
        self.flag.forget(order.settled)
        return True


class Use(Step):
    """Work that touches memory. `accesses`: (what, from, to, whether it writes); `call` and `where` for explanations.

    `dead`: it was dropped before it began. `told`: the program was told what is wrong with it. `staged` is for whoever
    looks at its memory.
    """

    __slots__ = ("accesses", "call", "dead", "staged", "told", "where")

    def __init__(self, line: Line, accesses: tuple[Access, ...], call: str, where: object) -> None:
        super().__init__(line)
        self.accesses = accesses
        self.call = call
        self.where = where
        self.dead = False
        self.told = False
        self.staged: Any = None

    def apply(self, order: Order) -> bool:
        """Take a place and touch the memory."""
        super().apply(order)
        order.used(self)
        return True


def joined(clock: Clock, known: Clock, *others: Clock) -> Clock:
    """The greatest of all, but for what is `known` anyway."""
    new = {number: at for number, at in clock.items() if at > known.get(number, 0)}
    for other in others:
        for number, at in other.items():
            if at > known.get(number, 0) and at > new.get(number, 0):
                new[number] = at
    return new


def _meet(marks: list[Mark]) -> Clock:
    """What comes before every one of `marks`, or is one and comes before the others."""
    clocks = [joined(mark.host, _NOTHING, mark.clock, {mark.number: mark.at}) for mark in marks]
    first, *others = clocks
    return {number: min([at, *(other.get(number, 0) for other in others)]) for number, at in first.items()}


class Order:
    """All lines, and what the host knows.

    `used` is called for every piece of work when its order is known, `reached` when the host has learned how far a
    stream has got: (number, at).
    """

    def __init__(self, used: Callable[[Use], None], reached: Callable[[int, int], None]) -> None:
        self.host: Clock = {}
        self.used = used
        self._lines: weakref.WeakSet[Line] = weakref.WeakSet()
        self._numbers = 0
        self._reached = reached
        # lines that are held up, and what the host knew when the first of them was
        self._held: list[Line] = []
        self._before_held = _NOTHING
        self._awake: list[Line] = []

    @property
    def settled(self) -> Clock:
        """What comes before everything that can still turn up, steps that are held up included."""
        return self._before_held if self._held else self.host

    @property
    def held(self) -> Iterable[Line]:
        """Lines with steps of which it is not known what they come after."""
        return self._held

    def line(self, name: str) -> Line:
        """A new stream."""
        self._numbers += 1
        line = Line(self._numbers, name)
        self._lines.add(line)
        return line

    def submit(self, step: Step) -> None:
        """`step` was put on its stream."""
        line = step.line
        step.host = self.host
        if line.held is not None:
            line.held.append(step)
        elif not step.apply(self):
            line.held = deque((step,))
            if not self._held:
                self._before_held = step.host
            self._held.append(line)
        if self._awake:
            self._go_on()

    def wake(self, lines: list[Line]) -> None:
        """A record that these lines wait for is there."""
        self._awake += lines
        lines.clear()

    def _go_on(self) -> None:
        while self._awake:
            line = self._awake.pop()
            while line.held:
                if not line.held[0].apply(self):
                    break
                line.held.popleft()
            if line.held is not None and not line.held:
                line.held = None
                self._held.remove(line)

    def here(self, line: Line) -> Step:
        """Everything that was put on a stream so far, for `learn`."""
        step = Step(line)
        step.at, step.clock = line.length, line.clock
        return step

    def learn(self, step: Step) -> bool:
        """The host knows that `step` is done, and so all that comes before it. False when that is nothing new."""
        old = self.host
        if step.at <= old.get(step.number, 0):
            return False
        self.host = new = dict(old)
        new[step.number] = step.at
        for number, at in step.clock.items():
            if at > new.get(number, 0):
                new[number] = at
        for number, at in ((step.number, step.at), *step.clock.items()):
            if at > old.get(number, 0):
                self._reached(number, at)
        return True

    def release(self, line: Line) -> None:
        """What is held up on this stream was dropped: whoever waits for a record of it goes on."""
        if line.held is None:
            return
        held, line.held = line.held, None
        self._held.remove(line)
        for step in held:
            if isinstance(step, Mark):
                step.apply(self)
        self._go_on()

    def forget_streams(self) -> None:
        """Drop from all clocks the streams that nothing refers to any more."""
        lines = list(self._lines)
        alive = {line.number for line in lines}
        self.host = {number: at for number, at in self.host.items() if number in alive}
        for line in lines:
            line.clock = {number: at for number, at in line.clock.items() if number in alive}
            line.awaited = {number: noted for number, noted in line.awaited.items() if number in alive}

    @property
    def streams(self) -> int:
        """How many streams the clocks know."""
        return len(self.host)
