"""Memory that takes the place of what leaves the pipeline with a result, so that its owner holds up nobody.

Made when it is first needed and kept for the next; both kinds are bounded. A request is *promised* what it will need
before it stands in line, so that at its end nothing has to be waited for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from ..errors import AioascendError, ForkedProcess, Overloaded, SessionClosed
from ..memory.blocks import Array, DeviceBlock
from ..memory.layout import Layout
from ..model import TensorSpec
from .buffers import OutputBuffer
from .core import DeviceCore
from .results import DeviceResult

__all__ = ["DeviceSpares", "PinnedSpares"]

B = TypeVar("B", DeviceBlock, OutputBuffer)
Made = Callable[[AioascendError | None], None]


class _Spares(ABC, Generic[B]):
    """Methods run on the device thread unless they say otherwise."""

    def __init__(self, core: DeviceCore, layout: Layout) -> None:
        self._core = core
        self._layout = layout
        self.idle: list[B] = []
        self.promised = 0
        self._making = 0

    @abstractmethod
    def _make(self) -> B:
        """A new one; control thread. Raises `OutOfMemory`."""

    @abstractmethod
    def _free(self, spare: B) -> None:
        """Give one back to the device's pool; from any thread."""

    @abstractmethod
    def _generation(self, spare: B) -> int: ...

    def make(self, then: Made) -> None:
        """Make one on the control thread; `then` follows on this one, with what it failed with if it did."""
        self._making += 1
        core = self._core

        def made(outcome: tuple[B | None, AioascendError | None]) -> None:
            spare, error = outcome
            self._making -= 1
            if spare is not None and self._generation(spare) == core.generation:
                self.idle.append(spare)
            elif spare is not None:
                self._free(spare)
            then(error)

        def make() -> None:
            try:
                core.recovery.check()
                outcome = core.memory.retrying(self._make), None
            except BaseException as failure:
                ours = isinstance(failure, AioascendError)
                error = failure if ours else AioascendError(f"memory for a result: {failure!r}")
                core.post(made, (None, error))
            else:
                core.post(made, outcome)

        core.control(make)

    def renew(self) -> None:
        """The context is another one: what belonged to the former goes."""
        former = [spare for spare in self.idle if self._generation(spare) != self._core.generation]
        self.idle = [spare for spare in self.idle if spare not in former]
        for spare in former:
            self._free(spare)

    def close(self) -> None:
        """Give back what is idle; control thread, when the context or the session goes."""
        self._release_down_to(0)

    def _release_down_to(self, count: int) -> None:
        # On two threads, perhaps: the device's, and the control thread's where the context goes.
        try:
            while len(self.idle) > count:
                self._free(self.idle.pop())
        except IndexError:
            pass


class DeviceSpares(_Spares[DeviceBlock]):
    """Device memory for results that stay there; `limit` of them may be alive or promised at once."""

    def __init__(self, core: DeviceCore, layout: Layout, limit: int) -> None:
        super().__init__(core, layout)
        self._limit = limit
        self._alive: dict[DeviceResult, None] = {}  # in the present context

    @property
    def alive(self) -> int:
        """Results that somebody holds."""
        return len(self._alive)

    def promise(self) -> Overloaded | None:
        """One result more, or past the limit what is to be said."""
        if self.promised + self.alive >= self._limit:
            return Overloaded(
                f"{self.alive} results of this session are alive on the device and {self.promised} on their way "
                f"(device_results={self._limit}): release some (tensor.release(), a `with` block, or let go of them), "
                "or open the session with a larger device_results"
            )
        self.promised += 1
        return None

    def fill(self) -> bool:
        """Have what was promised, as far as the device's pool has it idle; whether it is all there."""
        while len(self.idle) + self._making < self.promised:
            block = self._core.pools.device.take_idle(self._layout.nbytes, "results")
            if block is None:
                return False
            self.idle.append(block)
        return True

    def unpromise(self) -> None:
        """One result less that will come."""
        self.promised -= 1
        self._release_down_to(self.promised)

    def part(self, result: DeviceResult) -> DeviceBlock:
        """The block for a place whose own leaves with `result`."""
        self._alive[result] = None
        result.leave(partial(self._alive.pop, result, None))
        return self.idle.pop()

    def renew(self) -> None:
        """The context is another one: what belonged to the former goes, and so do the results that were there."""
        super().renew()
        for result in [one for one in self._alive if one.generation != self._core.generation]:
            del self._alive[result]  # its memory went with the context

    def restock(self) -> None:
        """Have what was promised in the new context; control thread. Raises `OutOfMemory`."""
        for _ in range(self.promised):
            self.idle.append(self._core.memory.retrying(self._make))

    def _make(self) -> DeviceBlock:
        return self._core.pools.device.take(self._layout.nbytes, "results")

    def _free(self, spare: DeviceBlock) -> None:
        spare.release()

    def _generation(self, spare: DeviceBlock) -> int:
        return spare.generation


class PinnedSpares(_Spares[OutputBuffer]):
    """Pinned output buffers for those that callers hold; when `limit` are held, results are copied instead."""

    def __init__(
        self, core: DeviceCore, layout: Layout, specs: tuple[TensorSpec, ...], limit: Callable[[], int]
    ) -> None:
        super().__init__(core, layout)
        self._specs = specs
        self._limit = limit
        self.lent = 0
        self._closed = False
        self._on_all_back: Callable[[], object] | None = None

    def promise(self) -> None:
        """One result more that is to leave without a copy, if that can be."""
        self.promised += 1
        return None

    def fill(self) -> bool:
        """Whether there are as many as can be had, for those to whom they were promised."""
        return len(self.idle) + self._making >= min(self.promised, self._limit() - self.lent)

    def unpromise(self) -> None:
        """One result less that will come."""
        self.promised -= 1

    def lend(self, outlet: OutputBuffer) -> tuple[list[Array], OutputBuffer] | None:
        """Arrays over `outlet`, which is their owner's now, and the buffer that takes its place; None if none is left.

        It serves again when the last of the arrays is gone.
        """
        if not self.idle:
            return None
        arrays = outlet.lend(partial(self._dropped, outlet))
        fresh = self.idle.pop()
        outlet.make_way(fresh)
        self.lent += 1
        return arrays, fresh

    def _dropped(self, outlet: OutputBuffer) -> None:
        # The last array is gone; from any thread, finalizers included.
        try:
            self._core.post(self._back, outlet)
        except (SessionClosed, ForkedProcess):
            pass  # it is the parent's

    def _back(self, outlet: OutputBuffer) -> None:
        self.lent -= 1
        if self._closed or self._generation(outlet) != self._core.generation:
            self._free(outlet)
        else:
            self.idle.append(outlet)
        if not self.lent and self._on_all_back is not None:
            self._on_all_back()

    def when_all_back(self, function: Callable[[], object]) -> bool:
        """True when none is lent; else call `function` once the last one is back. The session is closed."""
        self._closed = True
        self._release_down_to(0)  # those that have come back since `close`
        self._on_all_back = function
        return not self.lent

    def give_back_idle(self) -> None:
        """Give those that are lent to nobody back to the device's pool; control thread."""
        try:
            self._core.call(lambda: self._release_down_to(0)).result()
        except SessionClosed:
            return

    def _make(self) -> OutputBuffer:
        block = self._core.pools.pinned.take(self._layout.nbytes, "results")
        return OutputBuffer(block, self._layout, self._specs)

    def _free(self, spare: OutputBuffer) -> None:
        spare.block.release()

    def _generation(self, spare: OutputBuffer) -> int:
        return spare.block.generation
