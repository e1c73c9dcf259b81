"""The memory that a session's equipment has from its device's pools."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TypeVar

from ..memory.blocks import DeviceBlock, PinnedBlock
from .core import DeviceCore

__all__ = ["Supplies"]

B = TypeVar("B", bound=DeviceBlock)


class Supplies:
    """Blocks of one holder, whom `place` names in reports; control thread.

    They go back to their pools when the stack that they were taken with is closed, which is once no queued work refers
    to them.
    """

    def __init__(self, core: DeviceCore, place: str) -> None:
        self._core = core
        self._place = place
        self._cells: dict[DeviceBlock, list[DeviceBlock]] = {}  # of each block that is here, a list of it alone

    def device(self, nbytes: int, stack: ExitStack) -> DeviceBlock:
        """Device memory; raises `OutOfMemory`."""
        return self._keep(self._core.pools.device.take(nbytes, self._place), stack)

    def pinned(self, nbytes: int, stack: ExitStack) -> PinnedBlock:
        """Pinned memory, zeroed; raises `OutOfMemory`."""
        return self._keep(self._core.pools.pinned.take(nbytes, self._place), stack)

    def _keep(self, block: B, stack: ExitStack) -> B:
        cell: list[DeviceBlock] = [block]
        self._cells[block] = cell
        stack.callback(lambda: cell[0].release())
        return block

    def exchange(self, block: DeviceBlock, fresh: DeviceBlock) -> None:
        """`block` leaves with a result, and `fresh` takes its place; device thread, while the equipment is in use."""
        cell = self._cells[fresh] = self._cells.pop(block)
        cell[0] = fresh

    def abandon(self) -> None:
        """Leave everything behind: a stream that hangs may touch it for ever."""
        for block in self._cells:
            block.abandon()
