"""What a device has: streams, events and their records, the queues of report threads. All of it is state alone."""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .device_model import Task
    from .tasks import Callback


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
    """Why a task failed: a status code, a sentence, and the rule that was broken if it was one."""

    __slots__ = ("code", "rule", "text")

    def __init__(self, code: int, text: str, rule: str = "") -> None:
        self.code = code
        self.text = text
        self.rule = rule


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
        "line",
        "priority",
        "queue",
        "ready_at",
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
        # None: never set, which is to continue
        self.failure_mode: int | None = None
        self.aborted = False
        # with a time profile: when, on the device's clock, the stream got to where it stands
        self.ready_at = 0.0
        # what a watch knows of it
        self.line: Any = None

    def take_fault(self) -> Fault | None:
        """The pending failure, which is reported once; the one that ended the context is reported again and again."""
        fault = self.fault
        self.fault = None
        if fault is None and self.context is not None:
            fault = self.context.stopped
        return fault

    def fail(self, fault: Fault) -> None:
        """Note a failure; the first one not yet reported stays."""
        if self.fault is None:
            self.fault = fault

    def __repr__(self) -> str:
        return f"<Stream {self.handle:#x} {self.state.name.lower()} {self.completed}/{self.submitted} done>"


class Marker:
    """One record of an event: what later waits and queries of that event refer to."""

    __slots__ = ("done", "mark", "parked", "time", "waiters")

    def __init__(self) -> None:
        self.done = False
        # what a watch knows of it
        self.mark: Any = None
        self.time = 0.0
        # lists where there are any: most records are done before anybody waits
        self.parked: list[tuple[Stream, Task]] | None = None
        self.waiters: list[Waiter] | None = None

    def add(self, waiter: Waiter) -> None:
        """Wake this host thread when the record is done."""
        if self.waiters is None:
            self.waiters = [waiter]
        else:
            self.waiters.append(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Do not wake it, if it is still there."""
        if self.waiters is not None and waiter in self.waiters:
            self.waiters.remove(waiter)

    def is_done(self) -> bool:
        """Whether the stream has got there."""
        return self.done


class Event:
    """An event of one of the three flavours.

    `marker` is the latest record *submitted*. `raised` is the device-side flag of the legacy flavour: set by a record
    when the stream reaches it, cleared by a reset.
    """

    __slots__ = ("context", "flags", "flavour", "handle", "marker", "order", "parked", "raised", "waits")

    def __init__(self, handle: int = 0, context: Any = None, flavour: Flavour = Flavour.EX, flags: int = 1) -> None:
        self.handle = handle
        self.context = context
        self.flavour = flavour
        self.flags = flags
        self.marker: Marker | None = None
        self.raised = False
        self.parked: list[tuple[Stream, Task]] = []
        self.waits = 0
        # what a watch knows of it
        self.order: Any = None


class ReportQueue:
    """Callbacks that wait for one host thread, in the order in which their streams reached them."""

    __slots__ = ("current", "entries", "leaving", "owner", "streams", "thread", "waiter")

    def __init__(self, thread: int, owner: Thread | None = None) -> None:
        self.thread = thread
        # None where the thread is not Python's own
        self.owner = owner
        self.streams: set[Stream] = set()
        self.entries: deque[Callback] = deque()
        self.waiter: Waiter | None = None
        self.current: Callback | None = None
        self.leaving: list[Waiter] = []

    def ended(self) -> bool:
        """Whether the thread has certainly ended, so that what waits for it is never run."""
        return self.owner is not None and not self.owner.is_alive()

    def wake(self, code: int) -> None:
        """Wake the thread inside ``process_report``, if it is there."""
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            waiter.wake(code)
