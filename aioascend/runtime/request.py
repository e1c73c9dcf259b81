"""One request on its way through a pipeline: its inputs, its outcome, and who waits for it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..model import Outputs
from ..telemetry.marks import Marks, now
from .buffers import InputBuffer
from .leases import Lease
from .signal import Signal

__all__ = ["Request"]

Array = np.ndarray[Any, np.dtype[Any]]

_numbers = itertools.count(1)


class Request:
    """Made by the caller, then worked on by the device thread; read by whoever waits.

    The inputs are claimed exactly once (`list.pop` is atomic): by the copy into pinned memory, or by a cancel that
    comes first, after which nothing reads the caller's arrays any more.
    """

    __slots__ = (
        "_claim",
        "abandoned",
        "buffer",
        "done",
        "error",
        "marks",
        "number",
        "outputs",
        "patient",
        "pinned",
        "taken",
    )

    def __init__(self, arrays: list[Array], *, patient: bool, pinned: Lease | None = None) -> None:
        self._claim = [arrays]
        self.number = next(_numbers)
        self.patient = patient
        self.pinned = pinned  # pinned memory that the caller has filled itself
        self.buffer: InputBuffer | None = (
            pinned.buffer if pinned is not None else None
        )  # where its inputs lie until the device has read them
        self.abandoned = False
        self.taken = Signal()  # the caller's arrays are not read any more
        self.done = Signal()
        self.outputs: Outputs | None = None
        self.error: Exception | None = None
        self.marks: Marks | None = None  # while a recording is on

    def claim(self) -> list[Array] | None:
        """The inputs, for the first who asks."""
        try:
            return self._claim.pop()
        except IndexError:
            return None

    def result(self) -> Outputs:
        """The outcome, once `done`; raises what the request failed with."""
        if self.marks is not None:
            self.marks.woken = now()
        if self.error is not None:
            raise self.error
        assert self.outputs is not None
        return self.outputs
