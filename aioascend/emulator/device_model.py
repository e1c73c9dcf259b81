"""The device as plain synchronous state machines: streams, tasks, events, report queues.

No threads, no clock, no memory: every method that needs the time takes ``now`` (seconds), work that takes time is
handed out as a task and handed back when done. Whoever drives it (`engine.Engine`, or a unit test) holds the lock.

A stream is FIFO. Its first task is *begun* when the stream reaches it, which either finishes it at once (event
records, satisfied waits, callbacks that do not block), parks the stream (an event not recorded yet, a blocking
callback, no free compute lane) or yields a `Work` task that the driver has to run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol

from . import codes


class Step(IntEnum):
    """What beginning a task led to."""

    DONE = 0
    PARKED = 1
    WORK = 2


class State(IntEnum):
    """Where a stream stands."""

    IDLE = 0
    READY = 1
    RUNNING = 2
    PARKED = 3


class Flavour(IntEnum):
    """Which function made an event; the rules differ (reference §7)."""

    PLAIN = 0
    LEGACY = 1
    EX = 2


class Waiter(Protocol):
    """A host thread that waits; `wake` may be called once, from any thread."""

    def wake(self, code: int) -> None:
        """Let the thread go with this status."""


class Fault:
    """Why a task failed: a status code and a sentence."""

    __slots__ = ("code", "text")

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text


class Stream:
    """A FIFO queue of tasks.

    `submitted` and `completed` count tasks; `fault` is the failure not yet reported to the host.
    """

    __slots__ = (
        "aborted",
        "completed",
        "context",
        "failure_mode",
        "fault",
        "flags",
        "handle",
        "priority",
        "queue",
        "report",
        "state",
        "submitted",
        "waiters",
    )

    def __init__(self, handle: int = 0, context: Any = None, priority: int = 0, flags: int = 0) -> None:
        self.handle = handle
        self.context = context
        self.priority = priority
        self.flags = flags
        self.queue: deque[Task] = deque()
        self.state = State.IDLE
        self.submitted = 0
        self.completed = 0
        self.waiters: deque[tuple[int, Waiter]] = deque()
        self.fault: Fault | None = None
        self.report: ReportQueue | None = None
        self.failure_mode = codes.FAILURE_CONTINUE
        self.aborted = False

    def take_fault(self) -> Fault | None:
        """The pending failure, which is reported once."""
        fault = self.fault
        self.fault = None
        return fault

    def fail(self, fault: Fault) -> None:
        """Note a failure; the first one not yet reported stays."""
        if self.fault is None:
            self.fault = fault

    def __repr__(self) -> str:
        return f"<Stream {self.handle:#x} {self.state.name.lower()} {self.completed}/{self.submitted} done>"


class Marker:
    """One record of an event: what later waits and queries of that event refer to."""

    __slots__ = ("done", "parked", "time", "waiters")

    def __init__(self) -> None:
        self.done = False
        self.time = 0.0
        self.parked: list[tuple[Stream, Task]] = []
        self.waiters: list[Waiter] = []

    def is_done(self) -> bool:
        """Whether the stream has got there."""
        return self.done


class Event:
    """An event of one of the three flavours.

    `marker` is the latest record *submitted*. `raised` is the device-side flag of the legacy flavour: set by a record
    when the stream reaches it, cleared by a reset.
    """

    __slots__ = ("context", "flags", "flavour", "handle", "marker", "parked", "raised", "waits")

    def __init__(self, handle: int = 0, context: Any = None, flavour: Flavour = Flavour.EX, flags: int = 1) -> None:
        self.handle = handle
        self.context = context
        self.flavour = flavour
        self.flags = flags
        self.marker: Marker | None = None
        self.raised = False
        self.parked: list[tuple[Stream, Task]] = []
        self.waits = 0


class ReportQueue:
    """Callbacks that wait for one host thread, in the order in which their streams reached them."""

    __slots__ = ("current", "entries", "leaving", "streams", "thread", "waiter")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.streams: set[Stream] = set()
        self.entries: deque[Callback] = deque()
        self.waiter: Waiter | None = None
        self.current: Callback | None = None
        self.leaving: list[Waiter] = []

    def wake(self, code: int) -> None:
        """Wake the thread inside ``process_report``, if it is there."""
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            waiter.wake(code)


class Task:
    """Something a stream does. `begin` is called when the stream reaches it."""

    __slots__ = ()

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Do what the stream can do at once at this point."""
        raise NotImplementedError

    def dropped(self) -> None:
        """The task left its queue without having been begun, or while it was parked."""


class Work(Task):
    """A task that takes time. `run` does it and returns what went wrong, or None.

    `inline` work is so short that the driver may do it under its lock.
    """

    __slots__ = ("inline", "stream")

    def __init__(self, inline: bool = False) -> None:
        self.inline = inline
        self.stream: Stream | None = None

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Hand the task out."""
        return Step.WORK

    def run(self) -> Fault | None:
        """Do the work, with or without the driver's lock."""
        raise NotImplementedError

    def finished(self, model: DeviceModel) -> None:
        """The work is done, successfully or not."""


class Compute(Work):
    """Work on one of the device's compute lanes; `unit` (a loaded model) never runs twice at once."""

    __slots__ = ("unit",)

    def __init__(self, unit: ComputeUnit) -> None:
        super().__init__()
        self.unit = unit

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Take a compute lane, or queue for one."""
        if model.computing >= model.compute_lanes or self.unit.busy:
            model.compute_queue.append(stream)
            return Step.PARKED
        model.computing += 1
        self.unit.busy = True
        return Step.WORK

    def finished(self, model: DeviceModel) -> None:
        """Give the lane to whoever waits for it."""
        model.computing -= 1
        self.unit.busy = False
        # those that waited go first, in their order; whoever still finds no lane parks again
        for stream in reversed(model.compute_queue):
            model.unpark(stream, first=True)
        model.compute_queue.clear()


class ComputeUnit:
    """What a `Compute` task occupies."""

    __slots__ = ("busy",)

    def __init__(self) -> None:
        self.busy = False


class Record(Task):
    """Record an event: everything before it on the stream is done."""

    __slots__ = ("event", "marker")

    def __init__(self, event: Event, marker: Marker) -> None:
        self.event = event
        self.marker = marker

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """The record is done."""
        model.mark(self.marker, model.clock())
        if self.event.flavour is Flavour.LEGACY:
            self.event.raised = True
            model.unpark_all(self.event.parked)
        return Step.DONE


class Wait(Task):
    """Hold the stream until a record is done (plain and ex flavour)."""

    __slots__ = ("event", "marker")

    def __init__(self, event: Event, marker: Marker) -> None:
        self.event = event
        self.marker = marker
        event.waits += 1

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Go on if the record is done."""
        if not self.marker.done:
            self.marker.parked.append((stream, self))
            return Step.PARKED
        self.event.waits -= 1
        return Step.DONE

    def dropped(self) -> None:
        """One wait less."""
        self.event.waits -= 1


class LegacyWait(Task):
    """Hold the stream while the event's device-side flag is down (legacy flavour)."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event
        event.waits += 1

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Go on if the flag is up."""
        if not self.event.raised:
            self.event.parked.append((stream, self))
            return Step.PARKED
        self.event.waits -= 1
        return Step.DONE

    def dropped(self) -> None:
        """One wait less."""
        self.event.waits -= 1


class Reset(Task):
    """Bring an event back to "not recorded" when the waiting stream reaches this point."""

    __slots__ = ("event", "marker")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.marker = event.marker

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Take the record back."""
        self.event.raised = False
        # a record submitted after this reset is the event's new life
        if self.event.marker is self.marker:
            self.event.marker = None
        return Step.DONE


class Callback(Task):
    """A host function for the stream's report thread; ``block`` holds the stream until it has returned."""

    __slots__ = ("block", "function", "stream", "user_data")

    def __init__(self, function: Callable[[Any], Any], user_data: Any, block: bool) -> None:
        self.function = function
        self.user_data = user_data
        self.block = block
        self.stream: Stream | None = None

    def begin(self, model: DeviceModel, stream: Stream, now: float) -> Step:
        """Hand the function to the report thread."""
        report = stream.report
        if report is None:
            return Step.DONE
        self.stream = stream
        report.entries.append(self)
        report.wake(codes.SUCCESS)
        return Step.PARKED if self.block else Step.DONE


class DeviceModel:
    """All streams of one device.

    `clock` gives the time of an event record; `compute_lanes` is how many executes run at once.
    """

    def __init__(self, clock: Callable[[], float], compute_lanes: int = 1) -> None:
        self.clock = clock
        self.compute_lanes = compute_lanes
        self.computing = 0
        self.compute_queue: deque[Stream] = deque()
        self.ready: deque[Stream] = deque()

    # -- submission ---------------------------------------------------------------------------------------------

    def submit(self, stream: Stream, task: Task) -> bool:
        """Append `task`; True when the stream became ready, so that somebody has to call `advance`."""
        stream.queue.append(task)
        stream.submitted += 1
        if stream.state is State.IDLE:
            stream.state = State.READY
            self.ready.append(stream)
            return True
        return False

    # -- progress -----------------------------------------------------------------------------------------------

    def advance(self, now: float) -> Work | None:
        """Take every step that needs no work, and return the next piece of work, or None when there is none now."""
        ready = self.ready
        while ready:
            stream = ready.popleft()
            queue = stream.queue
            while queue:
                task = queue[0]
                step = task.begin(self, stream, now)
                if step is Step.DONE:
                    queue.popleft()
                    self._complete(stream)
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

    def finish(self, work: Work, fault: Fault | None) -> None:
        """`work`, handed out by `advance`, is done."""
        stream = work.stream
        assert stream is not None
        work.stream = None
        if fault is not None:
            stream.fail(fault)
        stream.queue.popleft()
        work.finished(self)
        if stream.queue:
            stream.state = State.READY
            self.ready.appendleft(stream)
        else:
            stream.state = State.IDLE
        self._complete(stream)

    def mark(self, marker: Marker, time: float) -> None:
        """A record is done: let its waiters go."""
        marker.done = True
        marker.time = time
        if marker.parked:
            self.unpark_all(marker.parked)
        if marker.waiters:
            for waiter in marker.waiters:
                waiter.wake(codes.SUCCESS)
            marker.waiters.clear()

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
            kept.append(stream.queue.popleft())
        elif stream.state is State.PARKED and stream in self.compute_queue:
            self.compute_queue.remove(stream)
        dropped = list(stream.queue)
        stream.queue = kept
        if stream.state is State.PARKED:
            stream.state = State.IDLE
        for task in dropped:
            task.dropped()
            if isinstance(task, Record):
                self.mark(task.marker, self.clock())
            stream.completed += 1
        for _, waiter in stream.waiters:
            waiter.wake(code)
        stream.waiters.clear()
