"""The books of a pool: which blocks are lent, which lie idle, and what becomes of one that comes back.

A plain state machine: no calls, no threads, no locks, no time. Its owner (`pool.MemoryPool`) allocates what it finds
missing and frees what it hands out as superfluous.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..telemetry.statistics import PoolStatistics
from .classes import size_class

__all__ = ["Books", "Entry", "Limits"]

_LARGER = 1.5
"""A request is served with an idle block of a larger class if that is no more than so many times its own class."""


@dataclass(frozen=True)
class Limits:
    """How much may lie idle: `depth` blocks a size class, `nbytes` bytes in all."""

    depth: int
    nbytes: int


class Entry:
    """One block: `size` bytes at `address`, of which the present holder has asked for `asked`."""

    __slots__ = ("address", "asked", "generation", "place", "size")

    def __init__(self, address: int, size: int, generation: int) -> None:
        self.address = address
        self.size = size
        self.generation = generation
        self.asked = 0
        self.place: str | None = None  # where the present holder asked for it

    def __repr__(self) -> str:
        return f"<{self.size} bytes at {self.address:#x}>"


class Books:
    """Blocks by size class; those of an earlier `generation` of the device's context are never lent again."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lent: dict[Entry, None] = {}
        self._idle: dict[Entry, None] = {}  # the one that came back first is first
        self._classes: dict[int, dict[Entry, None]] = {}  # idle ones by size; no empty class is kept
        self.generation = 0
        self.used = 0
        self.idle = 0
        self.asked = 0
        self.high_water = 0
        self.hits = 0
        self.misses = 0

    def take(self, nbytes: int, place: str | None = None) -> Entry | None:
        """Lend an idle block for a request of `nbytes`: of its class, else of the next larger one within 1.5 times it.

        The block that came back last is taken first. None, and nothing counted, when there is none.
        """
        size = size_class(nbytes)
        blocks = self._classes.get(size)
        if blocks is None:
            most = _LARGER * size
            larger = [one for one in self._classes if size < one <= most]
            if not larger:
                return None
            blocks = self._classes[min(larger)]
        entry = next(reversed(blocks))
        self._take_out(entry)
        self.hits += 1
        self._lend(entry, nbytes, place)
        return entry

    def made(self, address: int, size: int, nbytes: int, place: str | None = None) -> Entry:
        """Enter a block that had to be allocated for a request of `nbytes`, and lend it."""
        entry = Entry(address, size, self.generation)
        self.misses += 1
        self._lend(entry, nbytes, place)
        self.high_water = max(self.high_water, self.used + self.idle)
        return entry

    def give(self, entry: Entry) -> list[Entry]:
        """A block comes back; which blocks are to be freed, because too much would lie idle.

        Those that have lain idle for longest go first: what is wanted now is more likely to be wanted again. A block
        that is not lent (any more) changes nothing.
        """
        if not self._end_loan(entry):
            return []
        if (
            entry.generation != self.generation
            or entry.size != size_class(entry.size)
            or entry.size > self._limits.nbytes
            or self._limits.depth < 1
        ):
            return [entry]
        superfluous = []
        blocks = self._classes.get(entry.size)
        if blocks is not None and len(blocks) >= self._limits.depth:
            superfluous.append(self._take_out(next(iter(blocks))))
        while self.idle + entry.size > self._limits.nbytes:
            superfluous.append(self._take_out(next(iter(self._idle))))
        self._idle[entry] = None
        self._classes.setdefault(entry.size, {})[entry] = None
        self.idle += entry.size
        return superfluous

    def forget(self, entry: Entry) -> None:
        """A lent block is left behind: it is neither lent again nor freed."""
        self._end_loan(entry)

    def trim(self) -> list[Entry]:
        """All idle blocks, which are out of the books now: to be freed."""
        entries = list(self._idle)
        self._idle.clear()
        self._classes.clear()
        self.idle = 0
        return entries

    def lent(self) -> list[Entry]:
        """The blocks that are lent, the one lent first in front."""
        return list(self._lent)

    def statistics(self) -> PoolStatistics:
        """The figures; they are of one moment if nothing changes the books meanwhile."""
        return PoolStatistics(
            used=self.used,
            idle=self.idle,
            high_water=self.high_water,
            blocks=len(self._lent) + len(self._idle),
            hits=self.hits,
            misses=self.misses,
            fragmentation=self.used - self.asked,
        )

    def _lend(self, entry: Entry, nbytes: int, place: str | None) -> None:
        entry.asked = nbytes
        entry.place = place
        self._lent[entry] = None
        self.used += entry.size
        self.asked += nbytes

    def _end_loan(self, entry: Entry) -> bool:
        if entry not in self._lent:
            return False
        del self._lent[entry]
        self.used -= entry.size
        self.asked -= entry.asked
        entry.asked = 0
        entry.place = None
        return True

    def _take_out(self, entry: Entry) -> Entry:
        del self._idle[entry]
        blocks = self._classes[entry.size]
        del blocks[entry]
        if not blocks:
            del self._classes[entry.size]
        self.idle -= entry.size
        return entry
