"""One thread that runs calls one after the other.

Not a `ThreadPoolExecutor`: those refuse work as soon as the main thread has ended, while other threads of the program
may still be using a session.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from .background import go_on

__all__ = ["Worker"]

logger = logging.getLogger("aioascend.runtime")

T = TypeVar("T")


class _Call:
    """One call; it stays in line until it has its outcome."""

    __slots__ = ("arguments", "begun", "function", "outcome")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.outcome: Future[Any] = Future()
        self.outcome.set_running_or_notify_cancel()
        self.function: Callable[..., Any] | None = function
        self.arguments = arguments
        self.begun = False

    def run(self) -> None:
        """Run it and tell whoever waits."""
        self.begun = True
        function, arguments = self.function, self.arguments
        assert function is not None
        self.function, self.arguments = None, ()
        try:
            result = function(*arguments)
        except BaseException as error:
            del function, arguments
            self.outcome.set_exception(error)
        else:
            del function, arguments  # whoever waits for the result may want to drop what the call used
            self.outcome.set_result(result)


class Worker:
    """A worker named `name`; its thread starts with the first call.

    An exception that is thrown into the thread from outside (`SystemExit` by somebody who ends all threads) costs the
    call that runs, whose waiter gets it, and no other.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: deque[_Call | None] = deque()
        self._wake = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run ``function(*args)`` after what was submitted before; raises `RuntimeError` when it was stopped."""
        call = _Call(function, args)
        with self._lock:
            if self._stopped:
                raise RuntimeError(f"{self._name} was stopped")
            self._calls.append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._wake.release()
        return call.outcome

    def stop(self) -> None:
        """Take no more calls, finish those that were submitted, and end the thread; safe to call again."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._calls.append(None)
        self._wake.release()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def abandon(self) -> None:
        """Interpreter exit: take no more calls and drop those that have not begun."""
        self._stopped = True
        for call in list(self._calls):
            if call is not None and not call.begun:
                with contextlib.suppress(ValueError):
                    self._calls.remove(call)
        self._calls.append(None)
        self._wake.release()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, for no more than `seconds`."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        go_on(self._serve, self._interrupted)

    def _serve(self) -> None:
        calls = self._calls
        while True:
            if not calls:
                self._wake.acquire()  # one for every call, so that it may be behind: look again
                continue
            call = calls[0]
            if call is None:
                return
            call.run()
            del call
            calls.popleft()

    def _interrupted(self, error: BaseException) -> None:
        """The call that was being run, if any, has failed with `error`."""
        call = self._calls[0] if self._calls else None
        if call is not None and call.begun:
            if not call.outcome.done():
                call.outcome.set_exception(error)
            self._calls.popleft()
        logger.error("%s was interrupted by %r and goes on", self._name, error)
