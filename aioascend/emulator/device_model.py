"""The device as plain synchronous state machines: streams, tasks, events, report queues.

No threads, no clock, no memory: every method that needs the time takes ``now`` (seconds), work that takes time is
handed out as a task and handed back when done. Whoever drives it (`engine.Engine`, or a unit test) holds the lock.

A stream is FIFO. Its first task is *begun* when the stream reaches it, which either finishes it at once (event
records, satisfied waits, callbacks that do not block), parks the stream (an event not recorded yet, a blocking
callback, no free compute lane) or yields a `Work` task that the driver has to run.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from . import codes
from .streams import Fault, Marker, State, Stream

if TYPE_CHECKING:
    from .findings import Site
    from .tasks import Callback


class Step(IntEnum):
    """What beginning a task led to."""

    DONE = 0
    PARKED = 1
    WORK = 2


class Watch(Protocol):
    """What is told of every task that is put on a stream; the driver's lock is held."""

    def submitted(self, stream: Stream, task: Task) -> None:
        """`task` is about to be put on `stream`; an exception keeps it from there."""

    def dropped(self, stream: Stream, tasks: Iterable[Task]) -> None:
        """These tasks will never run."""

    def returned(self, callback: Callback) -> None:
        """A callback that blocks has returned, or will never run."""

    def tell(self) -> None:
        """Called when the lock is not held."""


DONE = Step.DONE


class Task:
    """Something a stream does. `begin` is called when the stream reaches it."""

    __slots__ = ()

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Do what the stream can do at once at this point."""
        raise NotImplementedError

    def dropped(self, model: DeviceModel) -> None:
        """The task left its queue without having been begun, or while it was parked."""


class Lane:
    """Something of which a device has `capacity`: compute cores, or one direction of the copy engine.

    Work takes a lane when its stream reaches it and keeps it until it is done; what finds none waits in order. With a
    time profile every server of the lane keeps its own clock: `free` is when its latest work ended, so that a late
    wake-up of the driver delays one task and not all that follow.
    """

    __slots__ = ("capacity", "free", "idle", "last", "queue")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.idle = list(range(capacity - 1, -1, -1))
        self.free = [0.0] * capacity
        self.last: list[ComputeUnit | None] = [None] * capacity
        self.queue: deque[Stream] = deque()

    @property
    def active(self) -> int:
        """How many servers work now."""
        return self.capacity - len(self.idle)

    def take(self, unit: ComputeUnit | None) -> int:
        """The server for work of `unit`: the one that did the same last, if it is idle."""
        if len(self.idle) > 1 and unit is not None:
            for server in self.idle:
                if self.last[server] is unit:
                    self.idle.remove(server)
                    return server
        return self.idle.pop()


class ComputeUnit:
    """What never runs twice at once: a loaded model.

    `brief`: a run of it takes so little that the driver treats it like inline work; `runs` counts them.
    """

    __slots__ = ("brief", "busy", "runs")

    def __init__(self) -> None:
        self.busy = False
        self.brief = False
        self.runs = 0


class Work(Task):
    """A task that takes time. `run` does it and returns what went wrong, or None.

    `inline` work is so short that the driver may do it under its lock. `lane` is what it occupies, if anything.
    `deadline` is when it is done by the time profile, and `hung` means that it never will be. `accesses` is the memory
    that it touches, for a watch: (block, from, to, whether it writes); `use` is what the watch knows of it.
    """

    kind: ClassVar[str] = "any"
    call: ClassVar[str] = "a task"

    # most work has none of these: they cost it nothing unless they are set
    __slots__ = ("__dict__", "inline", "lane", "stream", "unit")

    server = 0
    deadline = 0.0
    hung = False
    # the program's line that submitted it, if anybody asked for it
    site: Site | None = None
    accesses: tuple[tuple[Any, int, int, bool], ...] = ()
    use: Any = None
    # called once when the work has ended or was dropped
    done: Callable[[], None] | None = None

    def __init__(self, inline: bool = False, lane: Lane | None = None, unit: ComputeUnit | None = None) -> None:
        self.inline = inline
        self.stream: Stream | None = None
        self.lane = lane
        self.unit = unit

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Take what the work needs, or queue for it."""
        lane = self.lane
        if lane is not None:
            unit = self.unit
            if not lane.idle or (unit is not None and unit.busy):
                lane.queue.append(stream)
                return Step.PARKED
            self.server = lane.take(unit)
            if unit is not None:
                unit.busy = True
        if model.timed:
            self._schedule(stream)
        return Step.WORK

    def _schedule(self, stream: Stream) -> None:
        start = stream.ready_at
        lane = self.lane
        if lane is None:
            self.deadline = start + self.duration(None)
            return
        start = max(start, lane.free[self.server])
        self.deadline = start + self.duration(lane.last[self.server])
        lane.free[self.server] = self.deadline
        lane.last[self.server] = self.unit

    def duration(self, last: ComputeUnit | None) -> float:
        """Seconds by the time profile; `last` is what the server did before."""
        return 0.0

    def run(self) -> Fault | None:
        """Do the work, with or without the driver's lock."""
        raise NotImplementedError

    def dropped(self, model: DeviceModel) -> None:
        """The work will not be done."""
        if self.done is not None:
            self.done()

    def finished(self, model: DeviceModel) -> None:
        """The work is done, successfully or not: give back what it took."""
        if self.done is not None:
            self.done()
        lane = self.lane
        if lane is not None:
            lane.idle.append(self.server)
            if self.unit is not None:
                self.unit.busy = False
            if lane.queue:
                # those that waited go first, in their order; whoever still finds no server parks again
                for stream in reversed(lane.queue):
                    model.unpark(stream, first=True)
                lane.queue.clear()


class DeviceModel:
    """All streams of one device.

    `clock` gives the time of an event record; `lanes` is how many executes run at once. `timed`: tasks have durations
    of a time profile and end at absolute deadlines.
    """

    def __init__(self, clock: Callable[[], float], lanes: int = 1, timed: bool = False) -> None:
        self.clock = clock
        self.timed = timed
        self.compute = Lane(lanes)
        self.copies = {direction: Lane(1) for direction in ("h2d", "d2h", "d2d")}
        self.ready: deque[Stream] = deque()
        self.deadlines: list[tuple[float, int, Callable[[], None]]] = []
        # event records that are queued: each has an id of the device until it is done (reference §7)
        self.records = 0
        # the stream of the work that is finished now goes behind all that are ready, and not before them
        self.last = False
        # a task that fails with one of these leaves its context dead
        self.fatal: frozenset[int] = frozenset()
        # set by whoever injects faults: what tasks may be hit by, nearly always nothing
        self.faults: Sequence[Any] = ()
        # the same for callbacks: seconds by which the next callback is late
        self.lateness: Callable[[], float] | None = None
        self.watch: Watch | None = None
        self._order = itertools.count()

    # -- submission ---------------------------------------------------------------------------------------------

    def skip(self, stream: Stream) -> None:
        """Count a task of an idle stream that was done when it was submitted."""
        stream.submitted += 1
        stream.completed += 1

    def submit(self, stream: Stream, task: Task) -> bool:
        """Append `task`; True when the stream became ready, so that somebody has to call `advance`."""
        if self.watch is not None:
            self.watch.submitted(stream, task)
        stream.queue.append(task)
        stream.submitted += 1
        if stream.state is State.IDLE:
            stream.state = State.READY
            if self.timed:
                stream.ready_at = max(stream.ready_at, self.clock())
            self.ready.append(stream)
            return True
        return False

    # -- progress -----------------------------------------------------------------------------------------------

    def advance(self, now: float) -> Work | None:
        """Take every step that needs no work, and return the next piece of work, or None when there is none now."""
        deadlines = self.deadlines
        while deadlines and deadlines[0][0] <= now:
            heapq.heappop(deadlines)[2]()
        ready = self.ready
        while ready:
            stream = ready.popleft()
            queue = stream.queue
            while queue:
                task = queue[0]
                step = task.begin(self, stream, now)
                if step is DONE:
                    queue.popleft()
                    stream.completed += 1
                    if stream.waiters:
                        self._wake_waiters(stream)
                elif step is Step.PARKED:
                    stream.state = State.PARKED
                    break
                else:
                    stream.state = State.RUNNING
                    assert isinstance(task, Work)
                    task.stream = stream
                    return task
            else:
                stream.state = State.IDLE
        return None

    def finish(self, work: Work, fault: Fault | None, now: float = 0.0) -> None:
        """`work`, handed out by `advance`, was run. It counts as done at once, or when its deadline comes."""
        if work.deadline > now:
            self.at(work.deadline, partial(self._end, work, fault))
        else:
            self._end(work, fault)

    def at(self, deadline: float, action: Callable[[], None]) -> None:
        """Do something when `advance` is called at or after `deadline`."""
        heapq.heappush(self.deadlines, (deadline, next(self._order), action))

    def hurry(self, unit: ComputeUnit, streams: Iterable[Stream], now: float) -> None:
        """What `unit` runs on one of `streams` is done as soon as it can be, whatever the time profile says."""
        for stream in streams:
            work = stream.queue[0] if stream.queue else None
            if not isinstance(work, Work) or work.unit is not unit or work.stream is None or work.deadline <= now:
                continue
            if work.lane is not None and work.lane.free[work.server] == work.deadline:
                work.lane.free[work.server] = now
            before, work.deadline = work.deadline, now
            for index, (deadline, order, action) in enumerate(self.deadlines):
                if deadline == before and isinstance(action, partial) and action.args[:1] == (work,):
                    self.deadlines[index] = (now, order, action)
        heapq.heapify(self.deadlines)

    def next_deadline(self) -> float | None:
        """When `advance` has to be called although nothing happens."""
        return self.deadlines[0][0] if self.deadlines else None

    def hang(self, work: Work) -> None:
        """`work` never ends; only dropping its stream's tasks gets rid of it."""
        work.hung = True

    def hangs(self, stream: Stream) -> bool:
        """Whether `stream` stands at a task that never ends."""
        head = stream.queue[0] if stream.queue else None
        return isinstance(head, Work) and head.hung

    def _end(self, work: Work, fault: Fault | None) -> None:
        stream = work.stream
        if stream is None:
            return  # dropped meanwhile
        work.stream = None
        if fault is not None:
            stream.fail(fault)
        stream.queue.popleft()
        if fault is not None and (stream.failure_mode == codes.FAILURE_STOP or fault.code in self.fatal):
            stream.state = State.IDLE
            self._stop(stream, fault)
        if self.timed:
            stream.ready_at = max(stream.ready_at, work.deadline)
        if stream.queue:
            stream.state = State.READY
            (self.ready.append if self.last else self.ready.appendleft)(stream)
        else:
            stream.state = State.IDLE
        work.finished(self)  # behind those that waited for its lane: a stream with a long queue starves no other
        self._complete(stream)

    def _stop(self, stream: Stream, fault: Fault) -> None:
        """A context ends with a failure: what it has queued is dropped, and every stream says why."""
        context = stream.context
        if context is not None and context.stopped is None:
            context.stopped = fault
        streams = context.every_stream() if context is not None else (stream,)
        for one in streams:
            if one.queue or one is stream:
                one.fail(fault)
            self.drop(one, fault.code)

    def let_go(self, marker: Marker) -> None:
        """A record is done: let its waiters go."""
        parked, waiters = marker.parked, marker.waiters
        marker.parked = marker.waiters = None
        if parked is not None:
            self.unpark_all(parked)
        if waiters is not None:
            for waiter in waiters:
                waiter.wake(codes.SUCCESS)

    def unpark_all(self, parked: list[tuple[Stream, Task]]) -> None:
        """Make ready every stream of `parked` that still stands at the task it parked on."""
        for stream, task in parked:
            if stream.state is State.PARKED and stream.queue and stream.queue[0] is task:
                self.unpark(stream)
        parked.clear()

    def unpark(self, stream: Stream, first: bool = False) -> None:
        """Let a parked stream try its first task again."""
        if stream.state is not State.PARKED:
            return
        stream.state = State.READY
        if first:
            self.ready.appendleft(stream)
        else:
            self.ready.append(stream)

    def _complete(self, stream: Stream) -> None:
        stream.completed += 1
        if stream.waiters:
            self._wake_waiters(stream)

    def _wake_waiters(self, stream: Stream) -> None:
        while stream.waiters and stream.waiters[0][0] <= stream.completed:
            stream.waiters.popleft()[1].wake(codes.SUCCESS)

    # -- callbacks ----------------------------------------------------------------------------------------------

    def returned(self, callback: Callback) -> bool:
        """A callback returned or will never run; True when its stream, held by it, can go on."""
        if callback.block and self.watch is not None:
            self.watch.returned(callback)
        stream = callback.stream
        if not callback.block or stream is None:
            return False
        if stream.state is not State.PARKED or not stream.queue or stream.queue[0] is not callback:
            return False
        stream.queue.popleft()
        stream.state = State.IDLE
        self._complete(stream)
        if stream.queue:
            stream.state = State.READY
            self.ready.append(stream)
            return True
        return False

    def unsubscribe(self, stream: Stream) -> bool:
        """Take `stream` from its report queue with the callbacks not yet run; True when it can go on."""
        report = stream.report
        if report is None:
            return False
        stream.report = None
        report.streams.discard(stream)
        runnable = False
        for callback in [entry for entry in report.entries if entry.stream is stream]:
            report.entries.remove(callback)
            runnable |= self.returned(callback)
        if not report.streams:
            report.wake(codes.THREAD_SUBSCRIBE)
        return runnable

    # -- dropping work ------------------------------------------------------------------------------------------

    def drop(self, stream: Stream, code: int) -> None:
        """Forget everything queued on `stream` but the task that is running; waiting threads get `code`."""
        kept: deque[Task] = deque()
        if stream.state is State.RUNNING:
            hung = self.hangs(stream)
            head = stream.queue.popleft()
            if hung:
                assert isinstance(head, Work)
                head.stream = None
                head.finished(self)
                if self.watch is not None:
                    self.watch.dropped(stream, (head,))
                stream.completed += 1
                stream.state = State.IDLE
            else:
                kept.append(head)
        elif stream.state is State.PARKED:
            for lane in (self.compute, *self.copies.values()):
                if stream in lane.queue:
                    lane.queue.remove(stream)
            stream.state = State.IDLE
        dropped = list(stream.queue)
        stream.queue = kept
        if self.watch is not None:
            self.watch.dropped(stream, dropped)
        for task in dropped:
            task.dropped(self)
            stream.completed += 1
        for _, waiter in stream.waiters:
            waiter.wake(code)
        stream.waiters.clear()
