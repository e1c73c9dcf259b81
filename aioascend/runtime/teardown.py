"""Giving back what is in a context: every step happens, failing ones are noted, and no wait is for ever.

A healthy close may take as long as the device needs. Where the context is dead or the device hangs, all waits of one
teardown share one limit, and what cannot be given back is left behind and said so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from ..driver import Driver
from ..errors import AioascendError
from .draining import drain

__all__ = ["Teardown"]

logger = logging.getLogger("aioascend.runtime")

_AFTER_ABORT_MS = 200
_BEHIND_S = 3.0  # how long what has waited on the device for a stream that hung may still take once that is gone
_CALLBACKS_S = 0.1  # how long callbacks may take that a dead context may have dropped


class Teardown:
    """One teardown on the control thread; `seconds` bounds all its waits together, None leaves them unbounded.

    Once a stream that hung is out of the way, what waited for it on the device has three seconds more, all together.
    """

    def __init__(self, driver: Driver, seconds: float | None = None) -> None:
        self._driver = driver
        self._end = None if seconds is None else time.monotonic() + seconds
        self._prolonged = False
        self._callbacks_end: float | None = None
        self.notes: list[str] = []
        self.stuck: set[int] = set()  # streams that did not end

    def step(self, function: Callable[..., object], *args: Any) -> None:
        """Run one step; what it fails with is noted, so that the steps after it still happen."""
        try:
            function(*args)
        except BaseException as error:
            self._failed(error, getattr(function, "__name__", "a step"))

    def _failed(self, error: BaseException, call: str) -> None:
        self.note(str(error if isinstance(error, AioascendError) else self._driver.as_error(error, call)))

    def note(self, text: str) -> None:
        """Something was not given back, or a step failed."""
        if self._end is None:
            logger.warning("while closing: %s", text)
        else:
            self.notes.append(text)

    def finish_stream(self, stream: int) -> None:
        """Wait until nothing is under way on a stream, or abort it once the time is up, where the product can."""
        driver = self._driver
        if self._is_empty(stream, self._left_ms):
            return
        try:
            aborted = driver.abort_stream(stream)
        except BaseException as error:
            self._failed(error, "acl.rt.stream_abort")
            aborted = False
        if aborted and self._is_empty(stream, lambda: _AFTER_ABORT_MS):
            self._others_go_on()
            return
        self.stuck.add(stream)
        self.note(f"a stream of {driver.device} still has work and cannot be aborted")

    def _is_empty(self, stream: int, milliseconds: Callable[[], int]) -> bool:
        empty, failures = drain(self._driver, stream, milliseconds, lambda: False)
        for failure in failures:
            self.note(str(failure))
        return empty

    def wait_until(self, arrived: Callable[[], bool]) -> None:
        """Give callbacks that are still on their way a moment; a healthy close has had them all."""
        if arrived():
            return
        if self._callbacks_end is None or self._end is None:
            self._callbacks_end = time.monotonic() + _CALLBACKS_S
        while not arrived() and time.monotonic() < self._callbacks_end:
            time.sleep(0.001)

    def destroy_stream(self, stream: int) -> None:
        """Destroy a finished stream; one that is stuck by force, where that exists."""
        if stream not in self.stuck:
            self.step(self._driver.destroy_stream, stream)
            return
        try:
            if self._driver.destroy_stream_by_force(stream):
                self.stuck.discard(stream)
                self._others_go_on()
            else:
                self.note(f"a stream of {self._driver.device} that hangs was left behind, with what it uses")
        except BaseException as error:
            self._failed(error, "acl.rt.destroy_stream_force")
            self.stuck.discard(stream)

    def _others_go_on(self) -> None:
        # Their streams only waited for the one that has gone. Given up now they would be destroyed in the middle of a
        # run, whose model and memory are then given back under it. Once: the whole stays bounded.
        if self._end is not None and not self._prolonged:
            self._prolonged = True
            self._end = max(self._end, time.monotonic() + _BEHIND_S)

    def _left_ms(self) -> int:
        return -1 if self._end is None else max(1, int((self._end - time.monotonic()) * 1000))
