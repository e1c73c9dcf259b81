"""How the tensors of one side of a model lie in one block, so that one copy moves all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Layout", "plan"]

_START = 64  # device pointers and sub-block starts are 64-byte aligned (pyACL reference §8)
_GRAIN = 32
_PAD = 32


@dataclass(frozen=True)
class Layout:
    """Offsets of the tensors in the block, the bytes each may use, and the bytes of the whole."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    nbytes: int


def plan(sizes: Sequence[int]) -> Layout:
    """Lay tensors of these byte sizes one behind the other.

    Each gets ``ALIGN_UP(size, 32) + 32`` bytes and a 64-byte aligned start, as sub-allocation in a device block asks
    for (pyACL reference §8). The block is never empty: ACL refuses an allocation of 0 bytes.
    """
    offsets = []
    end = 0
    for size in sizes:
        start = -(-end // _START) * _START
        offsets.append(start)
        end = start + -(-size // _GRAIN) * _GRAIN + _PAD
    return Layout(tuple(offsets), tuple(sizes), max(end, _START))
