"""What the runtime itself costs: the same session on an `acl` module whose calls cost nothing.

`null_backend` gives that module: tasks are done when they are submitted, and `launch_callback` hands its token to the
report thread at once (it never runs it inline). What remains is aioascend's own way from a caller's loop to the device
thread, to the report thread and back.
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from aioascend.driver import Backend
from aioascend.testing import StubDriver

__all__ = ["MODEL", "null_backend"]

MODEL = b"IMOD" + bytes(252)
_TIMEOUT = 507012


def null_backend(shape: tuple[int, ...] = (16,)) -> Backend:
    """A backend of kind "npu" with one model, ``y = 0`` of one float32 input and output of `shape` (64 bytes)."""
    acl: Any = StubDriver(inputs=[("x", "float32", shape)], outputs=[("y", "float32", shape)]).acl
    rt, mdl = acl.rt, acl.mdl
    reports: queue.SimpleQueue[tuple[Callable[[Any], Any], Any]] = queue.SimpleQueue()

    def launch_callback(function: Callable[[Any], Any], data: Any, _block: int, _stream: int) -> int:
        reports.put((function, data))
        return 0

    def process_report(milliseconds: int) -> int:
        try:
            function, data = reports.get(timeout=milliseconds / 1000)
        except queue.Empty:
            return _TIMEOUT
        function(data)
        for _ in range(reports.qsize()):
            function, data = reports.get()
            function(data)
        return 0

    rt.launch_callback = launch_callback
    rt.process_report = process_report
    rt.memcpy_async = lambda *_: 0
    rt.record_event = rt.stream_wait_event = lambda *_: 0
    rt.stream_query = lambda _stream: (0, 0)
    rt.query_event_status = lambda _event: (1, 0)
    mdl.execute_async = lambda *_: 0
    return Backend("npu", acl)
