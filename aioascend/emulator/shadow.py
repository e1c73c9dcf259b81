"""Who touched which bytes of one block last: what the next access has to come after.

For every byte the latest write is kept, and the latest read of each stream since: whatever comes after those comes
after all that came before them. Bytes that were touched alike are one *cell*; what the host is known to be done with is
forgotten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

from .happens_before import Clock, Use


class Cell:
    """Bytes from `start` up to `end`, the latest write to them, and by stream the latest read since."""

    __slots__ = ("end", "reads", "start", "write")

    def __init__(self, start: int, end: int, write: Use | None, reads: dict[int, Use] | None) -> None:
        self.start = start
        self.end = end
        self.write = write
        self.reads = reads

    def cut(self, place: int) -> Cell:
        """Keep the part before `place`; the part from there on."""
        rest = Cell(place, self.end, self.write, dict(self.reads) if self.reads else None)
        self.end = place
        return rest

    def settle(self, known: Clock) -> bool:
        """Forget what is `known` to be done, or was dropped. True when nothing is left."""
        write, reads = self.write, self.reads
        if write is not None and (write.dead or write.at <= known.get(write.number, 0)):
            self.write = None
        if reads is not None:
            left = {number: use for number, use in reads.items() if not use.dead and use.at > known.get(number, 0)}
            self.reads = left or None
        return self.write is None and self.reads is None


class Conflict:
    """An earlier access without an order to a later one: of `use`, which `wrote`, the bytes from `start` to `end`."""

    __slots__ = ("end", "start", "use", "wrote")

    def __init__(self, use: Use, wrote: bool, start: int, end: int) -> None:
        self.use = use
        self.wrote = wrote
        self.start = start
        self.end = end


class Shadow:
    """The cells of one block, by address; between them is what nobody touched, or nobody can race with any more."""

    __slots__ = ("block", "cells", "starts")

    def __init__(self, block: Any) -> None:
        self.block = block
        self.cells: list[Cell] = []
        self.starts: list[int] = []

    def touch(self, use: Use, start: int, end: int, write: bool) -> list[Conflict]:
        """Enter an access; what it should have come after and does not."""
        cells, starts = self.cells, self.starts
        found: list[Conflict] = []
        first = bisect_right(starts, start) - 1
        if first < 0 or cells[first].end <= start:
            first += 1
        elif cells[first].start < start:
            rest = cells[first].cut(start)
            first += 1
            cells.insert(first, rest)
            starts.insert(first, start)
        last = first
        place = start
        new: list[Cell] = []
        while last < len(cells) and (cell := cells[last]).start < end:
            if cell.end > end:
                cells.insert(last + 1, cell.cut(end))
                starts.insert(last + 1, end)
            _check(cell, use, write, found)
            last += 1
            if write:
                continue
            if place < cell.start:
                new.append(Cell(place, cell.start, None, {use.number: use}))
            if cell.reads is None:
                cell.reads = {use.number: use}
            else:
                cell.reads[use.number] = use
            new.append(cell)
            place = cell.end
        if write:
            # one cell whatever there was: pieces grow together again
            if last == first + 1:
                cell = cells[first]
                if cell.start == start and cell.end == end:
                    cell.write, cell.reads = use, None
                    return found
            new.append(Cell(start, end, use, None))
        elif place < end:
            new.append(Cell(place, end, None, {use.number: use}))
        cells[first:last] = new
        starts[first:last] = [cell.start for cell in new]
        return found

    def overlapping(self, start: int, end: int) -> Iterator[Cell]:
        """The cells with bytes in this range."""
        place = bisect_right(self.starts, start) - 1
        if place >= 0 and self.cells[place].end > start:
            yield self.cells[place]
        yield from self.cells[place + 1 : bisect_left(self.starts, end)]

    def unfinished(self, known: Clock, start: int, end: int, write: bool) -> list[Conflict]:
        """What the host, which knows what is `known`, is in the way of when it touches these bytes now."""
        found = []
        for cell in self.overlapping(start, end):
            uses = [(cell.write, True)] if cell.write is not None else []
            if write and cell.reads is not None:
                uses += [(read, False) for read in cell.reads.values()]
            for use, wrote in uses:
                if use is not None and not use.dead and use.at > known.get(use.number, 0):
                    found.append(Conflict(use, wrote, max(start, cell.start), min(end, cell.end)))
        return found

    def settle(self, known: Clock) -> int:
        """Forget what is `known` to be done; how many cells are left."""
        self.cells = [cell for cell in self.cells if not cell.settle(known)]
        self.starts = [cell.start for cell in self.cells]
        return len(self.cells)


def _check(cell: Cell, use: Use, write: bool, found: list[Conflict]) -> None:
    """Find what `use` does not come after."""
    number, clock, host = use.number, use.clock, use.host
    old = cell.write
    if (
        old is not None
        and old.number != number
        and old.at > host.get(old.number, 0)
        and old.at > clock.get(old.number, 0)
        and not old.dead
    ):
        found.append(Conflict(old, True, cell.start, cell.end))
    if write and cell.reads is not None:
        for other, read in cell.reads.items():
            if other != number and read.at > host.get(other, 0) and read.at > clock.get(other, 0) and not read.dead:
                found.append(Conflict(read, False, cell.start, cell.end))
