"""Timed waits that end on time."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

__all__ = ["EARLY_S", "exact_timers", "stay_awake"]

EARLY_S = 100e-6
"""How much before a time a thread has to wake up to be there: a virtual processor that was idle takes 30 to 90 us."""

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


def stay_awake(until: float, clock: Callable[[], float], called: Callable[[], bool]) -> bool:
    """Let other threads run until a time of `clock`, without sleeping, or until `called`; whether that came."""
    while clock() < until:
        if called():
            return True
        time.sleep(0)
    return called()
