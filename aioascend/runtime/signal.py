"""A one-shot signal from the device thread that may be awaited on any loop, or waited for by a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .ports import Port, ThreadPort, current_port

__all__ = ["Signal"]


class Signal:
    """Set once, by any thread; waited for by any number of tasks and threads.

    No lock: a waiter first registers and then looks again, the setter first sets and then wakes whoever registered,
    and `list.append` and `list.pop` are atomic, so every waiter is seen by at least one side.
    """

    __slots__ = ("_set", "_waiters")

    def __init__(self) -> None:
        self._set = False
        self._waiters: list[tuple[Port, Any]] = []

    def __bool__(self) -> bool:
        return self._set

    def set(self, touch: Callable[[Port], None]) -> None:
        """Set it and leave a note at every waiter's port; `touch` sees to it that the port is woken."""
        self._set = True
        waiters = self._waiters
        while True:
            try:
                port, future = waiters.pop()
            except IndexError:
                return
            port.put(_resolve, future)
            touch(port)

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until it is set, or for `timeout` seconds; may be cancelled at any time; always lets the loop run."""
        if self._set:
            await asyncio.sleep(0)
            return
        loop, port = current_port()
        future = loop.create_future()
        self._waiters.append((port, future))
        if bool(self):
            await asyncio.sleep(0)
        elif timeout is None:
            await future
        else:
            timer = loop.call_later(timeout, _resolve, future)
            try:
                await future
            finally:
                timer.cancel()

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Block the calling thread until it is set; False on timeout (seconds)."""
        if self._set:
            return True
        port = ThreadPort()
        self._waiters.append((port, None))
        return self._set or port.wait(timeout) or self._set


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():  # its task may have been cancelled meanwhile
        future.set_result(None)
