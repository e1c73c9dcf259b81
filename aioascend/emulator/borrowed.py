"""Device memory that a program lends to a model it loads (``load_*_with_mem``, reference §11).

ONNX Runtime keeps weights and intermediate values elsewhere, so that what a program does wrong with such memory would
go unseen. Therefore the ends of weight memory are marked with what depends on the model alone (loads of one model may
share it), and checked before every run; the ends of work memory are overwritten by every run, as on hardware.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .memory import Block

if TYPE_CHECKING:
    from .model import Computation

_END = 32
_SCRIBBLE = b"\xa5" * _END


class Borrowed:
    """`size` bytes at the host-visible `place` in a block; `what` is "work" or "weight"."""

    __slots__ = ("block", "place", "size", "what")

    def __init__(self, block: Block, place: int, size: int, what: str) -> None:
        self.block = block
        self.place = place
        self.size = size
        self.what = what

    def ends(self) -> tuple[int, int]:
        """Where the first and the last bytes are."""
        return self.place, self.place + max(0, self.size - _END)

    def write(self, mark: bytes) -> None:
        """Write to both ends."""
        for place in self.ends():
            ctypes.memmove(place, mark, min(len(mark), self.size))

    def holds(self, mark: bytes) -> bool:
        """Whether both ends are as they were written."""
        mark = mark[: self.size]
        return all(ctypes.string_at(place, len(mark)) == mark for place in self.ends())


class Borrowings:
    """All that one model has borrowed."""

    __slots__ = ("_all", "_mark", "work")

    def __init__(self, network: Computation, borrowed: Sequence[Borrowed]) -> None:
        self._all = tuple(borrowed)
        self.work = tuple(one for one in borrowed if one.what == "work")
        self._mark = b""
        if not borrowed:
            return
        tensors = [(one.name, one.type.onnx, one.shape) for one in network.signature.inputs]
        self._mark = hashlib.sha256(repr((network.name, network.weight_size, tensors)).encode()).digest()
        for one in self._all:
            one.block.loans += 1
            if one.what == "weight":
                one.write(self._mark)

    def __iter__(self) -> Iterator[Borrowed]:
        return iter(self._all)

    def shares_work(self, other: Borrowings) -> bool:
        """Whether the other model computes in the same memory."""
        return any(
            mine.place < its.place + its.size and its.place < mine.place + mine.size
            for mine in self.work
            for its in other.work
        )

    def give_back(self) -> None:
        """The model was unloaded."""
        for one in self._all:
            one.block.loans -= 1

    def damage(self) -> str:
        """Before a run: use the work memory, and say what is wrong with the weights."""
        for one in self._all:
            if one.what == "work":
                one.write(_SCRIBBLE)
            elif not one.holds(self._mark):
                return f"its weights in {one.block!r} were overwritten"
        return ""
