"""Timed waits that end on time."""

from __future__ import annotations

import ctypes
import threading

__all__ = ["exact_timers"]

_PR_SET_TIMERSLACK = 29
_of_thread = threading.local()


def exact_timers() -> None:
    """Have the timed waits of this thread end when they are due, where the system can.

    Linux lets them be 50 us late so that wake-ups may be gathered (prctl(2), PR_SET_TIMERSLACK), which a device whose
    stages take milliseconds would not be. A second call on a thread does nothing.
    """
    if getattr(_of_thread, "exact", False):
        return
    _of_thread.exact = True
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
