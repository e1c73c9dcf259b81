"""Calls in the middle of calls.

A destructor or signal handler of the program can run between any two bytecodes: in the middle of another ACL call,
whose locks its thread holds, or on one of the emulator's own threads. On hardware it could not, as a C call is not
interrupted. What it calls there is done when the call that was interrupted has ended: so it is as if the destructor had
run a moment later.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("aioascend.emulator")

Pending = list[tuple[Callable[..., Any], tuple[Any, ...]]]


class Inside(threading.local):
    """Where a thread is: `calls` is None outside of ACL, else what has to be called when it is outside again: an empty
    tuple, or a `Pending` list. All are in the ``__dict__`` of every thread.
    """

    def __init__(self) -> None:
        self.calls: Any = None
        # one of the emulator's own threads, which is never outside
        self.ours = False
        # it runs a callback of the program's
        self.in_callback = False


class Nesting:
    """Postpones calls. `save` and `restore` are for what postponed calls must not change on the thread."""

    def __init__(self, save: Callable[[], Any], restore: Callable[[Any], None]) -> None:
        self.inside = Inside()
        # what destructors called on threads of ours: for the next thread of the program that comes by
        self.orphans: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        # set by whoever looks at calls before they are made
        self.found: Callable[[], None] = lambda: None
        self._save = save
        self._restore = restore

    def postpone(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Call this when the call in progress has ended."""
        inside = self.inside
        if inside.ours:
            self.orphans.append((function, arguments))
            self.found()
        elif inside.calls:
            inside.calls.append((function, arguments))
        else:
            inside.calls = [(function, arguments)]

    def leave(self) -> None:
        """A call has ended: make up for what it was in the way of."""
        calls = self.inside.calls
        self.inside.calls = None
        if calls:
            self._make_up(calls)

    def adopt(self) -> None:
        """Make up for what destructors called on threads of ours."""
        calls: Pending = []
        while self.orphans:
            calls.append(self.orphans.popleft())
        self._make_up(calls)

    def _make_up(self, calls: Pending) -> None:
        saved = self._save()
        try:
            for function, arguments in calls:
                try:
                    function(*arguments)
                except Exception:
                    logger.exception("a call of a destructor raised")
        finally:
            self._restore(saved)

    def run(self, function: Callable[[], Any]) -> Any:
        """Run something of the emulator's own that takes its locks."""
        if self.inside.calls is not None:
            return function()
        self.inside.calls = ()
        try:
            return function()
        finally:
            self.leave()

    def outside(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function of the program in the middle of a call: what it calls is done at once."""
        inside = self.inside
        calls, ours = inside.calls, inside.ours
        inside.calls, inside.ours = None, False
        try:
            return function(*arguments)
        finally:
            inside.calls, inside.ours = calls, ours

    def on_a_thread_of_ours(self) -> None:
        """The calling thread is one of the emulator's."""
        self.inside.ours = True
        self.inside.calls = ()
