"""Where memory was asked for: the line of the program outside aioascend, for reports of what was not released."""

from __future__ import annotations

import os
import sys
import threading

__all__ = ["caller", "told", "tracing"]

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OFF = ("", "0", "no", "false")


def tracing() -> bool:
    """Whether the environment variable `AIOASCEND_TRACE_MEMORY` asks for it (read again at every open of a device)."""
    return os.environ.get("AIOASCEND_TRACE_MEMORY", "").lower() not in _OFF


def caller() -> str | None:
    """``file:line`` of the innermost frame of this thread that is not aioascend's; None on a thread of its own."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_OURS) and frame.f_back is not None:
        frame = frame.f_back
    name = frame.f_code.co_filename
    return None if name == threading.__file__ else f"{name}:{frame.f_lineno}"


def told(place: str | None) -> str:
    """How a report names a place: a line of the program, or what of aioascend's own the memory is for."""
    if place is None:
        return "and AIOASCEND_TRACE_MEMORY=1 would say where they were asked for"
    return f"asked for at {place}" if place.rpartition(":")[2].isdigit() else f"held for {place}"
