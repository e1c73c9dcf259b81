"""One request on its way through a pipeline: its inputs, its outcome, and who waits for it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DeadlineExceeded
from ..model import Outputs
from ..telemetry.marks import Marks, now
from .ports import Port
from .signal import Signal

if TYPE_CHECKING:
    from .buffers import InputBuffer
    from .leases import Lease
    from .tensors import DeviceOutputs
    from .ties import Ties

__all__ = ["Request", "too_late"]

Array = np.ndarray[Any, np.dtype[Any]]

_numbers = itertools.count(1)


class Request:
    """Made by the caller, then worked on by the device thread; read by whoever waits.

    The inputs are claimed exactly once (`list.pop` is atomic): by the copy into pinned memory, or by a cancel that
    comes first, after which nothing reads the caller's arrays any more.
    """

    # What most requests never change.
    abandoned = False
    expired = False  # given up because of its deadline
    retried = False  # after the device had no memory for it
    recalls = 0  # how often the device's context died while it was there
    deadline: float | None = None
    lease: Lease | None = None  # on the memory that the caller has filled itself
    # Where its inputs lie until the device has read them; at first only where that is pinned memory.
    buffer: InputBuffer | None = None
    in_place = False  # nothing is copied on the host
    ties: Ties | None = None  # what it has on the device beside that
    outputs: Outputs | DeviceOutputs | None = None
    error: Exception | None = None
    marks: Marks | None = None  # while a recording is on

    def __init__(
        self,
        arrays: list[Array],
        patient: bool,
        priority: int = 0,
        timeout: float | None = None,
        lease: Lease | None = None,
        ties: Ties | None = None,
    ) -> None:
        self._claim = [arrays]
        self.nbytes = arrays[0].nbytes if len(arrays) == 1 else sum(array.nbytes for array in arrays)
        self.number = next(_numbers)
        self.patient = patient
        self.priority = priority
        self.timeout = timeout  # seconds
        if timeout is not None:
            self.deadline = time.monotonic() + timeout
        if lease is not None:
            self.lease = lease
            self.buffer = lease.buffer
            self.in_place = lease.buffer is not None
        if ties is not None:
            self.ties = ties
            if ties.residents and not arrays:
                self.in_place = True
        self.taken = Signal()  # the caller's arrays are not read any more
        self.done = Signal()

    def claim(self) -> list[Array] | None:
        """The inputs, for the first who asks."""
        claim = self._claim
        try:
            return claim.pop() if claim else None
        except IndexError:  # somebody else was faster
            return None

    def save(self) -> None:
        """Copy the inputs out of pinned memory, which is going to be given back, to be claimed once more."""
        buffer = self.lease.buffer if self.lease is not None and self.in_place else self.buffer
        if buffer is not None and not self.abandoned:
            buffer.block.host_access(write=False)
            self._claim = [[view.copy() for view in buffer.views]]
            self.buffer = None

    def give_up(self, error: Exception, touch: Callable[[Port], None]) -> None:
        """Nobody knows what became of it: tell whoever waits."""
        if not self.done:
            self.error = error
            self.taken.set(touch)
            self.done.set(touch)
            if self.lease is not None and self.lease.pool is not None:
                self.lease.pool.ended(self)

    def result(self) -> Outputs | DeviceOutputs:
        """The outcome, once `done`; raises what the request failed with."""
        if self.marks is not None:
            self.marks.woken = now()
        if self.error is not None:
            raise self.error
        assert self.outputs is not None
        return self.outputs


def too_late(timeout: float | None, *, queued: bool = False) -> DeadlineExceeded:
    """The error of a request whose time ran out; `queued` says that it is known not to have reached the device."""
    assert timeout is not None
    if queued:
        return DeadlineExceeded(f"the request cannot be finished within {timeout:g} s: its turn has not come in time")
    return DeadlineExceeded(f"the request was not finished within {timeout:g} s")
