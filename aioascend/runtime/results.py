"""What a run leaves on the device: one block for all its outputs, and everybody who refers to it.

The block is that of the place where the run was made; the place gets another one when the result leaves with it. It
goes back to the device's pool when nobody holds it: neither tensors over it, nor requests that read it, nor copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import AclError, AioascendError, SessionClosed, StaleLease, add_note, again
from ..memory.blocks import Array, DeviceBlock
from ..memory.layout import Layout
from ..model import TensorSpec

if TYPE_CHECKING:
    from .core import DeviceCore

__all__ = ["DeviceResult"]

_CAUSED = "this is what the run has failed with whose result on the device was asked for"


class DeviceResult:
    """One result on the device, from the moment it is asked for; its methods run on the device thread unless they say
    otherwise.

    `event` is recorded behind the run while that is under way, and 0 before that and once the host has seen its end.
    """

    __slots__ = (
        "_followers",
        "_on_gone",
        "active",
        "block",
        "claimed",
        "core",
        "done",
        "error",
        "event",
        "generation",
        "holds",
        "layout",
        "left",
        "queued",
        "readers",
        "runs",
    )

    def __init__(self, core: DeviceCore, layout: Layout) -> None:
        self.core = core
        self.layout = layout
        self.block: DeviceBlock | None = None
        self.event = 0
        self.generation = 0  # of the device's context, once the run was queued
        self.queued = False  # the run is on its way, as things stand
        self.done = False
        self.error: AioascendError | None = None  # what the run has failed with
        self.left = False  # the block is no place's any more
        self.holds = 1
        self.claimed = True  # one of the holders are the tensors
        self.readers = 0  # requests that take it as an input
        self.active = 0  # those of them whose runs may be reading it
        self.runs = 0  # how often it was made
        self._followers: list[Callable[[], None]] = []
        self._on_gone: Callable[[], object] = lambda: None

    # -- from any thread --------------------------------------------------------------------------------------------

    def problem(self) -> AioascendError | None:
        """What there is instead of the result, if that is known; from any thread.

        `StaleLease` when its memory is gone with the context it was made in, or was given back.
        """
        if self.error is not None:
            return _caused(self.error)
        if not self.holds:
            return StaleLease("this result was released: run the model again")
        if self.done and not (self.core.valid and self.generation == self.core.generation):
            return self._gone()
        return None

    def _gone(self) -> StaleLease:
        return self.core.gone(
            f"this result was on {self.core.name}, whose context was rebuilt or closed since, and went with it: run "
            "the model again",
            self.generation,
        )

    def read(self, wanted: Sequence[tuple[int, TensorSpec]]) -> Future[list[Array]]:
        """Copy these outputs to the host, once the run is over; from any thread. It fails with `problem`."""
        outcome: Future[list[Array]] = Future()

        def begin(_: None) -> None:
            problem = self.problem()
            if problem is not None:
                outcome.set_exception(problem)
            elif self.done:
                self._read(wanted, outcome)
            else:
                self.follow(lambda: begin(None))

        try:
            self.core.post(begin, None)
        except SessionClosed:
            raise self._gone() from None
        return outcome

    # -- device thread ----------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether a run that reads it can be queued: behind its event, where the run that makes it is under way."""
        if self.done:
            return True
        # A plain event of old CANN serves one dependency only (pyACL reference §7): there the host waits.
        live = self.queued and self.core.valid and self.generation == self.core.generation
        return live and self.core.driver.has_ex_events

    def follow(self, then: Callable[[], None]) -> None:
        """Call `then` when the run has been queued or has ended, or when no other run reads what it has written."""
        self._followers.append(then)

    def run_queued(self, block: DeviceBlock, event: int) -> None:
        """The run that writes the result to `block` is on its way, with `event` behind it."""
        self.block, self.event, self.generation, self.queued = block, event, self.core.generation, True
        self.runs += 1
        self._tell()

    def run_lost(self, *, aborted: bool = False) -> None:
        """What was queued does not count: it is made again, or fails. An `aborted` one never comes to its event."""
        self.queued = False
        if aborted:
            self.event = 0

    def unread(self) -> None:
        """One run less that may be reading it."""
        self.active -= 1
        if not self.active:
            self._tell()

    def leave(self, on_gone: Callable[[], object]) -> None:
        """The block is not the place's any more; `on_gone` is called when nobody holds it."""
        self.left = True
        self._on_gone = on_gone

    def end(self, error: Exception | None) -> None:
        """The outcome of the run is known."""
        # A copy, without the traceback: that would keep what the request had alive, and so the result.
        self.error = None if error is None else _caused(error)
        self.done, self.event = True, 0
        if error is not None:
            self.unclaim()  # there is nothing to hold
        self._tell()

    def _tell(self) -> None:
        followers, self._followers = self._followers, []
        for follower in followers:
            self.core.settle(follower)

    def hold(self, *, reading: bool = False) -> None:
        """One holder more; `reading` by a request whose run may be queued any time."""
        self.holds += 1
        self.readers += reading

    def unclaim(self) -> None:
        """The tensors hold it no more; a second call does nothing."""
        if self.claimed:
            self.claimed = False
            self.let_go()

    def let_go(self, *, reading: bool = False) -> None:
        """One holder less; the last one gives the memory back."""
        self.readers -= reading
        self.holds -= 1
        if not self.holds and self.left:
            self._on_gone()
            assert self.block is not None
            if self.core.valid:  # else it goes with its context, when what the streams were given is over
                self.block.release()

    def _read(self, wanted: Sequence[tuple[int, TensorSpec]], outcome: Future[list[Array]]) -> None:
        core, block, offsets = self.core, self.block, self.layout.offsets
        assert block is not None

        def copy() -> list[Array]:
            core.driver.set_context(core.context)
            arrays: list[Array] = []
            for index, spec in wanted:
                array: np.ndarray[Any, Any] = np.empty(spec.shape, spec.dtype)
                if array.nbytes:
                    core.driver.read_memory(array.ctypes.data, block.address + offsets[index], array.nbytes)
                arrays.append(array)
            return arrays

        def over(copied: Future[list[Array]]) -> None:
            try:
                core.post(ended, copied)
            except SessionClosed:  # the device is closed, and what it had is given back without us
                finish(copied)

        def ended(copied: Future[list[Array]]) -> None:
            self.let_go()
            error = copied.exception()
            if isinstance(error, AclError):
                core.recovery.report(error)
            finish(copied)

        def finish(copied: Future[list[Array]]) -> None:
            error = copied.exception()
            if error is None:
                outcome.set_result(copied.result())
                return
            ours = isinstance(error, AioascendError)
            outcome.set_exception(error if ours else AioascendError(f"copying a result to the host failed: {error!r}"))

        try:
            copied = core.copy(copy)
        except SessionClosed:
            outcome.set_exception(self._gone())
            return
        self.hold()
        copied.add_done_callback(over)


def _caused(error: Exception) -> AioascendError:
    """The error of a run, for those who wanted its result."""
    twin = again(error if isinstance(error, AioascendError) else AioascendError(repr(error)))
    if _CAUSED not in "\n".join([str(twin), *getattr(twin, "__notes__", [])]):  # before CPython 3.11 it is in the text
        add_note(twin, _CAUSED)
    return twin
