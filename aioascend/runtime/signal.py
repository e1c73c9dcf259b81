"""A one-shot signal from the device thread that may be awaited on any loop, or waited for by a thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from .ports import Port, ThreadPort, current_port

__all__ = ["Signal"]

_PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Signal:
    """Set once, by any thread; waited for by any number of tasks and threads.

    No lock: a waiter first registers and then looks again, the setter first sets and then wakes whoever registered,
    and storing, `dict.setdefault`, `dict.pop` and `dict.popitem` are atomic, so every waiter is seen by at least one
    side. Most signals of a request are never waited for: nothing is made before somebody registers.
    """

    __slots__ = ("__dict__", "_first", "is_set")

    _waiters: dict[Any, Port] | None = None  # what its port knows a waiter by -> the port

    def __init__(self) -> None:
        self.is_set = False
        self._first: tuple[Any, Port] | None = None  # whom it was made for (`expect`)

    def __bool__(self) -> bool:
        return self.is_set

    def set(self, touch: Callable[[Port], object]) -> None:
        """Set it and tell every waiter's port; `touch` sees to it that the port is woken. Twice does no harm."""
        self.is_set = True
        first = self._first
        if first is not None:
            waiter, port = first
            port.put(waiter)
            touch(port)
            self._first = None  # last: where this was interrupted, setting it again tells everybody
        waiters = self._waiters
        while waiters:
            try:
                waiter, port = waiters.popitem()
            except KeyError:  # it has just left
                return
            port.put(waiter)
            touch(port)

    def register(self, waiter: Any, port: Port) -> None:
        """Have `port` told of `waiter` when it is set; it may have been set meanwhile, so look at `is_set` again."""
        waiters = self._waiters
        if waiters is None:
            # Two that register at the same time get the same dictionary: that of whoever was first.
            waiters = self.__dict__.setdefault("_waiters", {})
        waiters[waiter] = port

    def expect(self, waiter: Any, port: Port) -> None:
        """`register` for the first waiter of a signal that nobody else knows of yet."""
        self._first = (waiter, port)

    def rouse(self) -> None:
        """It is about to be set: have the loop of whom it was made for wake up meanwhile; from any thread.

        Where there is one processor it does nothing: what wakes up early would only take the time of who sets it.
        """
        first = self._first
        if first is not None and _PROCESSORS > 1:
            first[1].wake()

    def leave(self, waiter: Any) -> None:
        """Undo `register` or `expect`, unless it was set meanwhile."""
        first = self._first
        if first is not None and first[0] is waiter:
            self._first = None
        if self._waiters is not None:
            self._waiters.pop(waiter, None)

    async def wait(self, deadline: float | None = None) -> None:
        """Wait until it is set, or until `deadline` (`time.monotonic`); may be cancelled at any time.

        Always lets the loop run. Leaves nothing behind, here or on the loop, however it ends.
        """
        if self.is_set:
            await asyncio.sleep(0)
            return
        loop, port = current_port()
        future = loop.create_future()
        self.register(future, port)
        try:
            if deadline is not None:
                port.watch(future, deadline)
            if bool(self):
                await asyncio.sleep(0)
            else:
                await future
        finally:
            self.leave(future)
            if deadline is not None:
                port.unwatch(future)

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Block the calling thread until it is set; False on timeout (seconds)."""
        if self.is_set:
            return True
        port = ThreadPort()
        self.register(port, port)
        try:
            return self.is_set or port.wait(timeout) or self.is_set
        finally:
            self.leave(port)
