"""Where threads run.

A wake-up on another processor takes several times as long as one on the same, and left to itself the kernel places each
pair of threads now so and now so: two pairs can be compared only where both are placed alike.
"""

from __future__ import annotations

import os
import threading
from typing import Literal

__all__ = ["Placement", "place"]

Placement = Literal["apart", "together", "anywhere"]
_CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def place(how: Placement) -> None:
    """Let the calling thread run on one CPU and every other thread on a second one, all on one, or all as they like.

    Where there is one CPU, or a system does not place threads, nothing changes.
    """
    if len(_CPUS) < 2:
        return
    caller = threading.get_native_id()
    for thread in threading.enumerate():
        native = thread.native_id
        if native is not None:
            alone = _CPUS[:1] if how == "together" or native == caller else _CPUS[1:2]
            os.sched_setaffinity(native, _CPUS if how == "anywhere" else alone)
