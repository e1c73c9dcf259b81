"""Contexts of a device, and what each host thread has current (reference §5)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .streams import Fault, Stream

if TYPE_CHECKING:
    from .happens_before import Step
    from .process import Device


class ThreadState(threading.local):
    """What one host thread has: its context, its last error text, the last status code."""

    context: Context | None = None
    message: str | None = None
    last_error: int = 0
    # for the race detector: the place of the callback that it runs, if that holds its stream
    holding: Step | None = None


class Context:
    """A context of a device with its default stream. A destroyed one may still be current on some thread."""

    __slots__ = ("alive", "default", "default_stream", "device", "handle", "stopped", "streams")

    def __init__(self, handle: int, device: Device, default: bool) -> None:
        self.handle = handle
        self.device = device
        self.default = default
        self.alive = True
        self.streams: dict[int, Stream] = {}
        self.default_stream = Stream(0, self)
        # the failure of a stream in stop mode, or one that ends a context, after which nothing can be submitted
        self.stopped: Fault | None = None

    def every_stream(self) -> tuple[Stream, ...]:
        """Its streams, the default one first."""
        return (self.default_stream, *self.streams.values())

    def __repr__(self) -> str:
        return f"context {self.handle:#x}"
