"""Pinned memory of the stages at both ends of the pipeline, and leases on it.

A caller's lease ends when its request has run or is given up *and* no array over the memory is alive any more: numpy
arrays cannot be taken back, so a buffer whose arrays somebody still holds is not handed to the next caller.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..memory.blocks import ArrayInterface, PinnedBlock, array_at
from ..memory.layout import Layout
from ..model import TensorSpec

if TYPE_CHECKING:
    from .supplies import Supplies

__all__ = ["InputBuffer", "OutputBuffer"]

Array = np.ndarray[Any, np.dtype[Any]]


def _views(block: PinnedBlock, layout: Layout, specs: tuple[TensorSpec, ...]) -> list[Array]:
    """One array for every tensor in a block."""
    return [
        array_at(block.address, offset, spec.dtype, spec.shape, spec.nbytes)
        for offset, spec in zip(layout.offsets, specs, strict=True)
    ]


def _lend(
    block: PinnedBlock, layout: Layout, specs: tuple[TensorSpec, ...], when_dropped: Callable[[], None]
) -> list[Array]:
    block.host_access(write=True)  # from now on, and nobody tells when
    owner = ArrayInterface(block.address, block.nbytes)
    raw: Array = np.asarray(owner)
    weakref.finalize(owner, when_dropped).atexit = False
    return [
        raw[offset : offset + spec.nbytes].view(spec.dtype).reshape(spec.shape)
        for offset, spec in zip(layout.offsets, specs, strict=True)
    ]


class InputBuffer:
    """One pinned block for all inputs of a request; `lendings` counts those it was lent to."""

    def __init__(self, block: PinnedBlock, layout: Layout, specs: tuple[TensorSpec, ...]) -> None:
        self.block = block
        self.generation = 0  # of the device's context, where that matters
        self._layout = layout
        self._specs = specs
        self.lendings = 0
        self.views = _views(self.block, layout, specs)

    def lend(self, when_dropped: Callable[[], None]) -> list[Array]:
        """Fresh arrays over the block; `when_dropped` is called once when the last of them is gone, on any thread."""
        return _lend(self.block, self._layout, self._specs, when_dropped)


class OutputBuffer:
    """One pinned block for all outputs of a request."""

    def __init__(
        self, block: PinnedBlock, layout: Layout, specs: tuple[TensorSpec, ...], supplies: Supplies | None = None
    ) -> None:
        self.block = block
        self.views = _views(self.block, layout, specs)
        self._layout = layout
        self._specs = specs
        self._supplies = supplies  # of the equipment that it is part of, if it is

    def lend(self, when_dropped: Callable[[], None]) -> list[Array]:
        """Fresh arrays over the block, as `InputBuffer.lend` gives."""
        return _lend(self.block, self._layout, self._specs, when_dropped)

    def make_way(self, fresh: OutputBuffer) -> None:
        """It leaves with a result, and `fresh` takes its place in the equipment; device thread."""
        supplies, self._supplies = self._supplies, None
        assert supplies is not None
        supplies.exchange(self.block, fresh.block)
        fresh._supplies = supplies
