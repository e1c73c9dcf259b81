"""How the device thread reaches whoever waits: one small port a waiter, one wake-up a loop and burst.

A port takes the futures that are to be resolved from any thread and resolves them where the waiter lives. The device
thread puts all of a burst first and then wakes each port once. The first implementation is an asyncio loop, which also
keeps the deadlines of its own waiters, so that they hold whatever the device thread is doing; `ThreadPort` serves the
synchronous doors.

A thread that computes in Python keeps the GIL for 5 ms (`sys.getswitchinterval`) from whoever has just woken up, and
for 10 ms where the GIL has changed hands in between. A request changes threads twice. So while a loop's turns come late
it asks for one ahead of the next result, and has it as soon as the thread with the result lets go of the GIL: those who
wait for it get it in the order in which they came.
"""

from __future__ import annotations

import asyncio
import queue
import time
import weakref
from collections import deque
from typing import Any, Protocol

from ..errors import NoEventLoop
from ..scheduling.deadlines import Deadlines

__all__ = ["LoopPort", "Port", "ThreadPort", "current_port"]

_LATE_S = 0.002  # a turn that comes so late has waited for the GIL, or for a callback that blocked the loop
_ASK_S = 0.001  # the shortest time of a timer
_MOST_IN_VAIN = 8  # turns in a row without anything to tell, before it is taken that nobody infers any more
_EARLY_S = 0.001  # uvloop's clock counts milliseconds: a timer may fire so much before its time


class Port(Protocol):
    """Where a waiter lives."""

    def put(self, waiter: Any) -> None:
        """What the port knows its waiter by, whose wait is over; from any thread. It is told after the next `wake`."""

    def wake(self) -> bool:
        """Have the waiters told soon; from any thread. One that is gone spoils nothing.

        True where the last turn has come late: who waits for something else now should ask for the GIL again soon.
        """


class LoopPort:
    """The port of an asyncio event loop (any implementation of it)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # whoever keeps a port must not keep its loop
        self._over: deque[asyncio.Future[None]] = deque()
        self.put = self._over.append
        self._armed = False
        self._woken_at = 0.0
        self._asked_at: float | None = None  # for a turn ahead of what there will be to tell
        self._in_vain = 0  # of such turns in a row
        self._deadlines: Deadlines[asyncio.Future[None]] = Deadlines()
        self._timer: asyncio.TimerHandle | None = None  # one for all of them: for the earliest when it was set
        self._due = 0.0

    def wake(self) -> bool:
        """Schedule one run through the futures unless one is already on its way; True while turns come late."""
        loop = self._loop()
        if self._armed and loop is not None and not loop.is_closed():
            return self._asked_at is not None
        self._armed = True
        self._woken_at = time.monotonic()
        try:
            if loop is None:
                raise RuntimeError("the loop is gone")
            loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            # Nobody is left who could be told: the loop was closed with requests in flight.
            self._over.clear()
            self._armed = False
            self._deadlines = Deadlines()
            self._timer = None
        return self._asked_at is not None

    def watch(self, future: asyncio.Future[None], deadline: float) -> None:
        """Resolve `future` at `deadline` (`time.monotonic`), unless `unwatch` comes first; on the loop's thread."""
        self._deadlines.add(future, deadline)
        if self._timer is None or deadline < self._due:
            self._set_timer(deadline)

    def unwatch(self, future: asyncio.Future[None]) -> None:
        """Undo `watch`; leaves no timer when it was the last."""
        self._deadlines.settle(future)
        if self._timer is not None and not self._deadlines:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, deadline: float) -> None:
        loop = self._loop()
        assert loop is not None
        if self._timer is not None:
            self._timer.cancel()
        self._due = deadline
        self._timer = loop.call_later(max(0.0, deadline - time.monotonic()), self._expire)

    def _expire(self) -> None:
        self._timer = None
        for future, _ in self._deadlines.expire(time.monotonic() + _EARLY_S):
            _resolve(future)
        earliest = self._deadlines.earliest()
        if earliest is not None:
            self._set_timer(earliest)

    def _run(self) -> None:
        self._armed = False  # before the first is taken: what is put from now on arms anew, so none is left behind
        if self._asked_at is None and time.monotonic() - self._woken_at > _LATE_S:
            self._ask()
        self._tell()

    def _ask(self) -> None:
        loop = self._loop()
        assert loop is not None  # this runs on it
        self._asked_at = time.monotonic()
        loop.call_later(_ASK_S, self._have_turn)

    def _have_turn(self) -> None:
        asked_at, self._asked_at = self._asked_at, None
        assert asked_at is not None
        self._in_vain += 1
        if time.monotonic() - asked_at > _ASK_S + _LATE_S and self._in_vain < _MOST_IN_VAIN:
            self._ask()
        self._tell()  # now: whoever computes may take the GIL between two callbacks

    def _tell(self) -> None:
        over = self._over
        if over:
            self._in_vain = 0
        for _ in range(len(over)):
            future = over.popleft()
            if not future.done():  # its task may have been cancelled meanwhile
                future.set_result(None)


def _resolve(future: asyncio.Future[None]) -> None:
    """End a wait, unless its task was cancelled meanwhile; on the loop's thread."""
    if not future.done():
        future.set_result(None)


class ThreadPort:
    """The port of a plain thread that blocks until it is told."""

    def __init__(self) -> None:
        # Written in C: a signal handler that raises in the middle of the wait leaves nothing half done.
        self._over: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._over.put

    def wake(self) -> bool:
        """Nothing to do: `put` has woken the thread."""
        return False

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it was told; False on timeout (seconds)."""
        try:
            self._over.get(timeout=timeout)
        except queue.Empty:
            return False
        return True


_PORT = "_aioascend_port"  # the attribute of a loop that has its port: a registry would keep a closed loop alive by it


def current_port() -> tuple[asyncio.AbstractEventLoop, LoopPort]:
    """The running loop and its port; raises `NoEventLoop` where none of asyncio's kind runs."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise NoEventLoop(
            "this has to be awaited on a running asyncio event loop (any implementation of it), and there is none on "
            "this thread; plain threads, and trio through trio.to_thread, use infer_sync"
        ) from None
    port: LoopPort | None = getattr(loop, _PORT, None)
    if port is None:
        port = LoopPort(loop)
        setattr(loop, _PORT, port)
    return loop, port
