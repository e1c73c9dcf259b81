"""The race detector: two accesses of the same bytes, at least one of them a write, without an order between them.

It listens to what is put on streams (`submitted`, under the lock of the stream's engine), and is told what the host
learns and touches. Which accesses are in order says `happens_before`, who touched which bytes last `shadow`, what the
host does to pinned memory without saying so `staging`. An access is judged when it is submitted, by what the program
asked for: how fast this machine was does not count.
"""

from __future__ import annotations

import _thread
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from . import codes
from .args import Failure
from .device_model import Task, Work
from .findings import Findings, here
from .happens_before import Await, Flag, FlagAwait, FlagClear, Line, Mark, Noted, Order, Step, Use
from .memory import Block, Blocks
from .nesting import Nesting
from .shadow import Conflict, Shadow
from .staging import Staged, poison
from .streams import Event, Flavour, Stream
from .tasks import Callback, LegacyWait, Record, Reset, Wait

logger = logging.getLogger("aioascend.emulator")

_FEW = 1024
_MOST = 1 << 16
_STREAMS = 256


class EventOrder:
    """What the detector knows of an event: its flag (legacy flavour), and by stream the latest wait for it."""

    __slots__ = ("flag", "waits")

    def __init__(self) -> None:
        self.flag = Flag()
        self.waits: dict[int, Step] = {}


class Host(Protocol):
    """What the detector asks of the emulated process."""

    @property
    def pinned(self) -> Blocks:
        """Pinned memory."""

    @property
    def nesting(self) -> Nesting:
        """How to run what must not be interrupted by destructors of the program."""

    @property
    def local(self) -> Any:
        """What a thread has: `holding`, the step of the blocking callback that it is in."""


class Races:
    """The race detector of one emulated process, which is the `host`."""

    def __init__(self, findings: Findings, host: Host) -> None:
        self._findings = findings
        self._host = host
        # taken under the lock of an engine, and never the other way round
        self._lock = _thread.allocate_lock()
        self._order = Order(self._used, self._reached)
        self._shadows: dict[Shadow, None] = {}
        self._cells = 0
        self._sweep_at = _FEW
        self._streams_at = _STREAMS
        self._staged: dict[int, deque[Staged]] = {}
        # blocking callbacks that have not returned
        self._blocking: list[Step] = []
        self._submitting: Use | None = None
        self._problem = ""
        # what is to be told when no lock is held: rule, call, text, where, against
        self._found: deque[tuple[str, str, str, str, str]] = deque()
        self._full = self._said_so = False

    def forked(self) -> None:
        """In a forked child: a thread that is not here may hold the lock."""
        self._lock = _thread.allocate_lock()

    @property
    def records(self) -> int:
        """How much is remembered: cells of memory, clocks' entries, copies that are watched."""
        with self._lock:
            return self._cells + self._order.streams + sum(map(len, self._staged.values())) + len(self._blocking)

    # -- what is put on streams; the lock of the engine is held -----------------------------------------------------

    def submitted(self, stream: Stream, task: Task) -> None:
        """`task` is about to be put on `stream`. In strict mode a race refuses it: `Failure`."""
        if isinstance(task, Work):
            if task.accesses:
                self._work(stream, task)
            return
        with self._lock:
            line = self._line(stream)
            if isinstance(task, Record):
                event = task.event
                flag = _event(event).flag if event.flavour is Flavour.LEGACY else None
                mark = task.marker.mark = Mark(line, f"event {event.handle:#x}", here(), flag)
                self._order.submit(mark)
            elif isinstance(task, Wait):
                if task.marker.mark is not None:
                    self._waits(task.event, Await(line, task.marker.mark))
            elif isinstance(task, LegacyWait):
                self._waits(task.event, FlagAwait(line, _event(task.event).flag))
            elif isinstance(task, Reset):
                if task.event.flavour is Flavour.LEGACY:
                    self._order.submit(FlagClear(line, _event(task.event).flag))
            elif isinstance(task, Callback):
                task.step = Step(line)
                self._order.submit(task.step)
                if task.block:
                    self._blocking.append(task.step)

    def _work(self, stream: Stream, task: Work) -> None:
        with self._lock:
            if self._cells > self._sweep_at:
                self._sweep()
            use = task.use = Use(self._line(stream), task.accesses, task.call, task.site or here())
            self._submitting, self._problem = use, ""
            self._order.submit(use)
            self._submitting = None
            problem = self._problem
            if problem:
                use.dead = True
        if problem:
            raise Failure(codes.PARAM_INVALID, problem, "race")

    def _waits(self, event: Event, step: Step) -> None:
        if event.flavour is not Flavour.EX:
            _event(event).waits[step.number] = step
        self._order.submit(step)

    def in_vain(self, stream: Stream, event: Event) -> None:
        """`stream` waits for an event without a record, which orders nothing (ex flavour)."""
        with self._lock:
            line = self._line(stream)
            line.void = (line.length, f"event {event.handle:#x}", line.name, here())

    def dropped(self, stream: Stream, tasks: Iterable[Task]) -> None:
        """These tasks of a stream will never run."""
        with self._lock:
            for task in tasks:
                if isinstance(task, Work) and task.use is not None:
                    task.use.dead = True
                elif isinstance(task, Callback) and task.step in self._blocking:
                    self._blocking.remove(task.step)
            if stream.line is not None:
                self._order.release(stream.line)
                self._unwatch(stream.line.number)

    def returned(self, callback: Callback) -> None:
        """A callback that holds its stream has returned, or will never run."""
        with self._lock:
            if callback.step in self._blocking:
                self._blocking.remove(callback.step)

    def _line(self, stream: Stream) -> Line:
        line: Line | None = stream.line
        if line is None:
            if self._order.streams > self._streams_at:
                self._sweep()
            name = f"stream {stream.handle:#x}" if stream.handle else "the default stream"
            line = stream.line = self._order.line(name)
        return line

    # -- what the host learns ---------------------------------------------------------------------------------------

    def here(self, stream: Stream) -> Step | None:
        """What is on a stream now, to be given to `learn` when it is known to be done."""
        if stream.line is None:
            return None
        with self._lock:
            return self._order.here(stream.line)

    def learn(self, step: Step | None) -> None:
        """The host knows that `step` is done. No lock is held."""
        if step is None or not step.at:
            return
        with self._lock:
            self._order.learn(step)
        self.tell()

    def learn_waits(self, event: Event) -> None:
        """The host knows that all waits for an event were passed."""
        if isinstance(event.order, EventOrder):
            for step in list(event.order.waits.values()):
                self.learn(step)

    def settled(self, streams: Iterable[Stream]) -> None:
        """Nothing of these streams runs any more, or can be waited for: their device is gone, or they are."""
        for stream in streams:
            self.learn(self.here(stream))

    # -- memory -----------------------------------------------------------------------------------------------------

    def host(self, block: Block | None, start: int, size: int, write: bool, call: str, code: int = 0) -> None:
        """The host touches memory now, in `call`; in strict mode that fails with `code` where it is a race."""
        if block is None or size <= 0:
            return
        end = start + size
        with self._lock:
            found = self._unfinished(block, start, end, write)
            inside = self._host.local.holding
            if inside is not None and found:
                # what is behind the callback on its stream comes after it
                found = [one for one in found if not (one.use.at and inside.precedes(one.use))]
            if not found:
                return
            conflict = found[0]
            conflict.use.told = True
        where = here()
        verb = "free" if "free" in call else "write" if write else "read"
        by = f" by {call}" if call else ""
        first = conflict.use
        text = (
            f"{_access(conflict)} and the host's {verb}{by} at {where} have no order: {_host_waits(first)} "
            f"({_bytes(conflict, block)})"
        )
        self._findings.note("race", call or "the host", text, code, where=str(where), against=str(first.where))

    def needed_by(self, block: Block) -> str:
        """Which of the accesses of a block that is freed the host has not waited for, and what to do; "" for none."""
        with self._lock:
            found = self._unfinished(block, block.start, block.start + block.size, True)
            if not found:
                return ""
            first = found[0].use
            first.told = True
        return f": {_access(found[0])}; {_host_waits(first)}"

    def announce(self, address: int, size: int, write: bool) -> None:
        """The program is about to touch pinned memory itself, and says so; other memory is none of this."""
        self._host.nesting.run(lambda: self._announced(address, size, write))

    def _announced(self, address: int, size: int, write: bool) -> None:
        block = self._host.pinned.find(address)
        if block is not None:
            self.host(block, address, min(size, block.start + block.size - address), write, "")

    def _unfinished(self, block: Block, start: int, end: int, write: bool) -> list[Conflict]:
        """What the host is in the way of when it touches these bytes now. The lock is held."""
        shadow: Shadow | None = block.shadow
        found = shadow.unfinished(self._order.host, start, end, write) if shadow is not None else []
        return found + self._held_up(block, start, end, write)

    def _held_up(self, block: Block, start: int, end: int, write: bool) -> list[Conflict]:
        return [
            Conflict(step, wrote, max(start, first), min(end, last))
            for line in self._order.held
            for step in line.held or ()
            if isinstance(step, Use) and not step.dead and not step.at
            for what, first, last, wrote in step.accesses
            if what is block and first < end and start < last and (write or wrote)
        ]

    def _used(self, use: Use) -> None:
        """The order of a piece of work is known: judge its accesses. The lock is held."""
        for block, start, end, write in use.accesses:
            shadow: Shadow | None = block.shadow
            if shadow is None:
                shadow = block.shadow = Shadow(block)
                self._shadows[shadow] = None
            if block.device < 0:
                self._stage(use, block, shadow, start, end, write)
            before = len(shadow.cells)
            found = shadow.touch(use, start, end, write)
            self._cells += len(shadow.cells) - before
            for conflict in found:
                self._clash(use, write, conflict, block)

    def _stage(self, use: Use, block: Block, shadow: Shadow, start: int, end: int, write: bool) -> None:
        """Watch a copy's source, or spoil its destination, if nothing else may change the one or need the other."""
        if shadow.unfinished(self._order.host, start, end, write):
            return
        if any(step.at and step.precedes(use) for step in self._blocking):
            return  # what such a callback does to the memory comes before this
        if write:
            poison(start + block.delta, end - start)
        else:
            staged = use.staged = Staged(use, block, start, end - start)
            self._staged.setdefault(use.number, deque()).append(staged)

    def _clash(self, use: Use, write: bool, conflict: Conflict, block: Block) -> None:
        first = conflict.use
        first.told = use.told = True
        one, other = first.line, use.line
        text = (
            f"{_access(conflict)} and {other.name}'s {'write' if write else 'read'} by {use.call} at {use.where} have "
            f"no order: record an event on {one.name} after the first and let {other.name} wait for it before the "
            f"second{_explained(first, use)} ({_bytes(conflict, block)})"
        )
        if use is self._submitting and self._findings.strict:
            self._problem = self._problem or text
        else:
            self._found.append(("race", use.call, text, str(use.where), str(first.where)))

    # -- copies from memory that the host writes --------------------------------------------------------------------

    def _reached(self, number: int, at: int) -> None:
        """The host has learned how far a stream has got. The lock is held."""
        staged = self._staged.get(number)
        if staged is None:
            return
        while staged and staged[0].use.at <= at:
            one = staged.popleft()
            if one.early or (self._is_the_hosts(one) and one.changed()):
                self._changed(one, f"the host learned that it had been read at {here()}")
        if not staged:
            del self._staged[number]

    def _is_the_hosts(self, staged: Staged) -> bool:
        """Whether no device has been given the memory to write to since."""
        shadow: Shadow | None = staged.block.shadow
        end = staged.start + staged.count
        number = staged.use.number
        covered = 0
        for cell in shadow.overlapping(staged.start, end) if shadow is not None else ():
            if cell.reads is not None and number in cell.reads:
                covered += min(end, cell.end) - max(staged.start, cell.start)
        return covered == staged.count

    def _changed(self, staged: Staged, then: str) -> None:
        use, count = staged.use, staged.count
        if use.told or use.dead:
            return
        use.told = True
        text = (
            f"the host wrote to the source of {use.line.name}'s {use.call} at {use.where} before it could know that it "
            f"had been read, {'and before it was' if staged.early else 'if only just after it was'} "
            f"({count} bytes at {staged.start:#x} in {staged.block!r}); {then}: wait for {use.line.name}, or for an "
            f"event recorded on it after the copy, before the memory is used again"
        )
        self._found.append(("changed-while-queued", use.call, text, str(use.where), ""))

    def finish(self) -> None:
        """Tell of copies that went wrong although nobody has waited for them."""
        with self._lock:
            for staged in [one for line in self._staged.values() for one in line if one.early]:
                self._changed(staged, "the host has not waited for it")
        self.tell()

    def _unwatch(self, number: int) -> None:
        staged = self._staged.get(number)
        if staged is not None:
            left = deque(one for one in staged if not one.use.dead)
            if left:
                self._staged[number] = left
            else:
                del self._staged[number]

    # -- telling and forgetting -------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Tell the program of what was found. No lock is held."""
        while self._found:
            try:
                rule, call, text, where, against = self._found.popleft()
            except IndexError:
                return  # another thread was faster
            if rule == "race":
                self._findings.note("race", call, text, where=where, against=against)
            else:
                self._findings.note("changed-while-queued", call, text, where=where)
        if self._full and not self._said_so:
            self._said_so = True
            text = "more than %d pieces of memory were touched without the host ever waiting: some races may be missed"
            logger.warning(text, _MOST)

    def _sweep(self) -> None:
        """Forget what nothing can race with any more. The lock is held."""
        known = self._order.settled
        total = 0
        for shadow in list(self._shadows):
            left = shadow.settle(known) if shadow.block.alive else 0
            if left:
                total += left
            else:
                del self._shadows[shadow]
                shadow.block.shadow = None
        while total > _MOST:
            self._full = True
            shadow = next(iter(self._shadows))
            total -= len(shadow.cells)
            del self._shadows[shadow]
            shadow.block.shadow = None
        self._cells = total
        self._sweep_at = max(_FEW, 2 * total)
        self._order.forget_streams()
        self._streams_at = max(_STREAMS, 2 * self._order.streams)


def _event(event: Event) -> EventOrder:
    order = event.order
    if order is None:
        order = event.order = EventOrder()
    return order  # type: ignore[no-any-return]


def _access(conflict: Conflict) -> str:
    use = conflict.use
    return f"{use.line.name}'s {'write' if conflict.wrote else 'read'} by {use.call} at {use.where}"


def _host_waits(use: Use) -> str:
    return (
        f"let the host wait first until {use.line.name} is done with it (synchronise the stream or an event recorded "
        "after it, ask until it is complete, or use a callback)"
    )


def _bytes(conflict: Conflict, block: Block) -> str:
    return f"{conflict.end - conflict.start} bytes at {conflict.start:#x} in {block!r}"


def _explained(first: Use, second: Use) -> str:
    """Which events are there, if any, and why they do not help."""
    one, other = first.line, second.line
    text = ""
    waited: Noted | None = other.awaited.get(one.number)
    if waited is not None and waited[0] < first.at:
        text += f"; the record of {waited[1]} at {waited[3]}, for which {other.name} waits, comes before the first"
    elif waited is None and other.awaited:
        _, name, line, where = list(other.awaited.values())[-1]
        text += f"; {other.name} waits for {name}, but that was recorded on {line}, at {where}"
    if other.void is not None:
        text += f"; the wait for {other.void[1]} at {other.void[3]} does nothing, as that had no record then"
    for at, name, _, where in one.lately:
        if at > first.at:
            text += f"; {name} was recorded on {one.name} after the first, at {where}: nothing waits for it"
            break
    return text
