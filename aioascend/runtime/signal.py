"""A one-shot signal from the device thread that may be awaited on any loop, or waited for by a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .ports import Port, ThreadPort, current_port, resolve

__all__ = ["Signal"]


class Signal:
    """Set once, by any thread; waited for by any number of tasks and threads.

    No lock: a waiter first registers and then looks again, the setter first sets and then wakes whoever registered,
    and storing, `dict.pop` and `dict.popitem` are atomic, so every waiter is seen by at least one side.
    """

    __slots__ = ("_set", "_waiters")

    def __init__(self) -> None:
        self._set = False
        self._waiters: dict[Any, Port] = {}  # what its port is to be told about -> the port

    def __bool__(self) -> bool:
        return self._set

    def set(self, touch: Callable[[Port], None]) -> None:
        """Set it and leave a note at every waiter's port; `touch` sees to it that the port is woken."""
        self._set = True
        waiters = self._waiters
        while True:
            try:
                future, port = waiters.popitem()
            except KeyError:
                return
            port.put(resolve, future)
            touch(port)

    async def wait(self, deadline: float | None = None) -> None:
        """Wait until it is set, or until `deadline` (`time.monotonic`); may be cancelled at any time.

        Always lets the loop run. Leaves nothing behind, here or on the loop, however it ends.
        """
        if self._set:
            await asyncio.sleep(0)
            return
        loop, port = current_port()
        future = loop.create_future()
        self._waiters[future] = port
        try:
            if deadline is not None:
                port.watch(future, deadline)
            if bool(self):
                await asyncio.sleep(0)
            else:
                await future
        finally:
            self._waiters.pop(future, None)
            if deadline is not None:
                port.unwatch(future)

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Block the calling thread until it is set; False on timeout (seconds)."""
        if self._set:
            return True
        port = ThreadPort()
        self._waiters[port] = port
        try:
            return self._set or port.wait(timeout) or self._set
        finally:
            self._waiters.pop(port, None)
