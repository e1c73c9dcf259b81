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

    # Slots, all of them set: an attribute that is looked up in the class costs many times as much, and each of these is
    # looked at on every request.
    __slots__ = (
        "_claim", "_taken", "abandoned", "buffer", "deadline", "done", "error", "expired", "in_place", "is_taken",
        "lease", "marks", "nbytes", "number", "outputs", "patient", "priority", "recalls", "retried", "ties", "timeout",
    )  # fmt: skip

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
        self.deadline: float | None = None if timeout is None else time.monotonic() + timeout
        self.abandoned = False
        self.expired = False  # given up because of its deadline
        self.retried = False  # after the device had no memory for it
        self.recalls = 0  # how often the device's context died while it was there
        self.lease = lease  # on the memory that the caller has filled itself
        # Where its inputs lie until the device has read them; at first only where that is pinned memory.
        self.buffer: InputBuffer | None = None
        self.in_place = False  # nothing is copied on the host
        if lease is not None:
            self.buffer = lease.buffer
            self.in_place = lease.buffer is not None
        self.ties = ties  # what it has on the device beside that
        if ties is not None and ties.residents and not arrays:
            self.in_place = True
        self.outputs: Outputs | DeviceOutputs | None = None
        self.error: Exception | None = None
        self.marks: Marks | None = None  # while a recording is on
        self.is_taken = False
        self._taken: Signal | None = None
        self.done = Signal()

    @property
    def taken(self) -> Signal:
        """Set when the caller's arrays are not read any more; for the caller alone, as it is made when he asks."""
        signal = self._taken
        if signal is None:
            signal = self._taken = Signal()
        if self.is_taken:  # looked at after the signal is there, as `take` looks for one after it has said so
            signal.is_set = True
        return signal

    def take(self, touch: Callable[[Port], object]) -> None:
        """The caller's arrays are not read any more: tell whoever waits for that."""
        self.is_taken = True
        signal = self._taken
        if signal is not None:
            signal.set(touch)

    def claim(self) -> list[Array] | None:
        """The inputs, for the first who asks."""
        claim = self._claim
        try:
            return claim.pop() if claim else None
        except IndexError:  # somebody else was faster
            return None

    @property
    def has_inputs(self) -> bool:
        """Whether it could be run from its beginning: its inputs are the caller's still, or complete in our memory."""
        return bool(self._claim) or self.in_place or (self.buffer is not None and self.is_taken)

    def save(self) -> None:
        """Copy the inputs out of pinned memory, which is going to be given back, to be claimed once more."""
        buffer = self.lease.buffer if self.lease is not None and self.in_place else self.buffer
        if buffer is not None and not self.abandoned:
            buffer.block.host_access(write=False)
            self._claim = [[view.copy() for view in buffer.views]]
            self.buffer = None

    def give_up(self, error: Exception, touch: Callable[[Port], object]) -> None:
        """Nobody knows what became of it: tell whoever waits."""
        if self.done:
            self.done.set(touch)  # he may not have been told
        else:
            self.error = error
            self.take(touch)
            self.done.set(touch)
            if self.lease is not None and self.lease.pool is not None:
                self.lease.pool.ended(self)

    def result(self) -> Outputs | DeviceOutputs:
        """The outcome, once `done`; raises what the request failed with."""
        if self.marks is not None:
            self.marks.woken = now()
        error = self.error
        if error is not None:
            try:
                raise error.with_traceback(None)  # a ticket raises it as often as it is awaited
            finally:
                # The traceback has this frame. If that had the request, which has the error, whatever the caller's
                # frames hold would be kept until the garbage collector comes; the same wherever this is called.
                del self, error
        outputs = self.outputs
        assert outputs is not None
        return outputs


def too_late(timeout: float | None, *, queued: bool = False) -> DeadlineExceeded:
    """The error of a request whose time ran out; `queued` says that it is known not to have reached the device."""
    assert timeout is not None
    if queued:
        return DeadlineExceeded(f"the request cannot be finished within {timeout:g} s: its turn has not come in time")
    return DeadlineExceeded(f"the request was not finished within {timeout:g} s")
