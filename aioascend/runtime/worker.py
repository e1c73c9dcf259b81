"""One thread that runs calls one after the other.

Not a `ThreadPoolExecutor`: those refuse work as soon as the main thread has ended, while other threads of the program
may still be using a session.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Worker"]

T = TypeVar("T")


class Worker:
    """A worker named `name`; its thread starts with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._calls = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run ``function(*args)`` after what was submitted before; raises `RuntimeError` when it was stopped."""
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()
        with self._lock:
            if self._stopped:
                raise RuntimeError(f"{self._name} was stopped")
            self._calls.put((outcome, function, args))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        return outcome

    def stop(self) -> None:
        """Take no more calls, finish those that were submitted, and end the thread; safe to call again."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._calls.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def abandon(self) -> None:
        """Interpreter exit: take no more calls and drop those that have not begun."""
        self._stopped = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()
        self._calls.put(None)

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, for no more than `seconds`."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            outcome, function, args = item
            del item
            try:
                result = function(*args)
            except BaseException as error:
                del function, args
                outcome.set_exception(error)
            else:
                del function, args  # whoever waits for the result may want to drop what the call used
                outcome.set_result(result)
                del result
            del outcome
