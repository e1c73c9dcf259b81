"""Which calls hold the GIL while they are in the vendor's library, and by which door a call came (reference §3)."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from types import TracebackType
from typing import Any

RELEASED = frozenset(
    {
        "acl.rt.synchronize_stream",
        "acl.rt.synchronize_stream_with_timeout",
        "acl.rt.synchronize_event",
        "acl.rt.synchronize_event_with_timeout",
        "acl.rt.synchronize_device",
        "acl.rt.process_report",
        "acl.rt.stream_wait_event",
        "acl.util.start_thread",
        "acl.util.stop_thread",
    }
)
"""The functions of pyACL that release the GIL; every other one holds it."""


class _Door(threading.local):
    native = 0


_door = _Door()


class Released:
    """While it is entered, calls of this thread count as made to the C library directly, with the GIL released.

    ``with gil.released(): acl.rt.destroy_stream(stream)``: whatever the table says, the call then holds the GIL
    neither for the time of a profile nor for a wait, and is no part of the deadlocks that come of holding it. Other
    threads are not concerned. May be nested.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _door.native += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _door.native -= 1


_released = Released()


def released() -> Released:
    """The context manager that marks this thread's calls as coming from the C library's door: see `Released`."""
    return _released


def holds(function: str) -> bool:
    """Whether a call of `function` (``acl.rt.free``) made by this thread now holds the GIL while it lasts."""
    return function not in RELEASED and not _door.native


class Kept:
    """While it is entered, this thread keeps the GIL between its naps of `sleep` too.

    Otherwise every return from C to Python would let a thread go first that has waited for longer than the switch
    interval. Threads that began to wait meanwhile keep to the longer interval until they have had the GIL once, so it
    must not be much longer than what a program can bear.
    """

    INTERVAL = 0.25

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(max(self.INTERVAL, self._before))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._depth -= 1
            if not self._depth:
                sys.setswitchinterval(self._before)


kept = Kept()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_held: Any = ctypes.PyDLL(None)


def sleep(seconds: float) -> None:
    """Sleep with the GIL held: every other Python thread stands still, real compute goes on."""
    end = time.perf_counter() + seconds
    # a signal ends a nap
    while (left := end - time.perf_counter()) > 0:
        whole = int(left)
        _held.nanosleep(ctypes.byref(_Timespec(whole, int((left - whole) * 1e9))), None)
