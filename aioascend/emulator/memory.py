"""Emulated device memory and page-locked host memory.

A device address lies in a reserved range without access rights, so that touching it from the host faults as on
hardware; the bytes are in a second mapping of the same size at a constant distance, committed by the kernel page by
page on first touch. A block keeps its mapping alive: freeing memory that a queued copy still uses takes the block out
of the books at once (the copy will fail), and never pulls pages from under a copy in progress.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from typing import Any

from . import codes
from .args import Failure

ALIGNMENT = 64
_GIVE_BACK = 1 << 20
_FREED = 4096
# address space, of which no page is in use
_FREED_PINNED_BYTES = 1 << 30
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_NO_ACCESS = 0
_DONTNEED = getattr(mmap, "MADV_DONTNEED", 4)

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_munmap = _libc.munmap
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_madvise = _libc.madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

# with the GIL released for large copies, held for small ones: giving the GIL away costs more than copying a few KiB
move_released = _libc.memmove
move_released.restype = None
move_released.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_held: Any = ctypes.PyDLL(None)
move_held = _held.memmove
move_held.restype = None
move_held.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
fill_released = _libc.memset
fill_released.restype = None
fill_released.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

HELD_UP_TO = 32 << 10


def move(destination: int, source: int, count: int) -> None:
    """Copy `count` bytes between two host-visible addresses."""
    (move_held if count <= HELD_UP_TO else move_released)(destination, source, count)


def map_pages(size: int, access: int) -> int:
    """Address of a fresh private mapping; `MemoryError` when the system refuses."""
    address = _mmap(None, size, access, _PRIVATE | _NORESERVE, -1, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise MemoryError(f"the system refused to map {size} bytes (errno {ctypes.get_errno()})")
    return int(address)


class Block:
    """One allocation.

    `start` is the address that the program sees, ``start + delta`` the address of the bytes, `size` what may be
    touched. `alive` ends with free.
    """

    __slots__ = (
        "__weakref__",
        "alive",
        "delta",
        "device",
        "internal",
        "loans",
        "owner",
        "requested",
        "shadow",
        "size",
        "start",
        "users",
    )

    def __init__(self, start: int, size: int, requested: int, delta: int, device: int, owner: object = None) -> None:
        self.start = start
        self.size = size
        self.requested = requested
        self.delta = delta
        self.device = device
        self.owner = owner
        self.alive = True
        self.internal = False
        # queued tasks that need it; counted in strict mode only
        self.users = 0
        # loaded models that have borrowed it
        self.loans = 0
        # who touched it last, for the race detector
        self.shadow: Any = None

    def __repr__(self) -> str:
        kind = "pinned host" if self.device < 0 else f"device {self.device}"
        return f"<Block {self.start:#x} {self.requested} bytes, {kind}{'' if self.alive else ', freed'}>"


class Pages:
    """Host pages that live as long as this object."""

    __slots__ = ("address", "size")

    def __init__(self, size: int, access: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.address = map_pages(self.size, access)

    def __del__(self) -> None:
        address = getattr(self, "address", 0)
        if address and _munmap is not None:
            _munmap(address, self.size)


class Blocks:
    """Allocations by address.

    `everywhere` is a table of all allocations by start that several such collections share: most addresses that a
    program passes are the start of a block.
    """

    def __init__(self, everywhere: dict[int, Block] | None = None) -> None:
        self._by_start: dict[int, Block] = {}
        self._starts: list[int] = []
        self._everywhere = everywhere if everywhere is not None else {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_start)

    def __iter__(self) -> Any:
        return iter(list(self._by_start.values()))

    def add(self, block: Block) -> None:
        """Enter a block."""
        with self._lock:
            self._by_start[block.start] = block
            self._everywhere[block.start] = block
            insort(self._starts, block.start)

    def remove(self, start: int) -> Block | None:
        """Take out the block that starts here; it is dead from now on."""
        with self._lock:
            block = self._by_start.pop(start, None)
            if block is not None:
                del self._starts[bisect_left(self._starts, start)]
                self._everywhere.pop(start, None)
                block.alive = False
            return block

    def clear(self) -> None:
        """Take out every block."""
        with self._lock:
            for block in self._by_start.values():
                block.alive = False
                self._everywhere.pop(block.start, None)
            self._by_start.clear()
            self._starts.clear()

    def get(self, start: int) -> Block | None:
        """The block that starts here."""
        return self._by_start.get(start)

    def find(self, address: int) -> Block | None:
        """The block that `address` lies in."""
        block = self._by_start.get(address)
        if block is not None:
            return block
        with self._lock:
            position = bisect_right(self._starts, address) - 1
            if position < 0:
                return None
            block = self._by_start[self._starts[position]]
        return block if address < block.start + block.size else None


class DeviceMemory:
    """The memory of one device: `size` bytes, first fit, starts aligned to 64.

    With `opaque` false (run mode 0: the program runs on the board) the addresses are host addresses.
    """

    def __init__(self, device: int, size: int, opaque: bool = True, everywhere: dict[int, Block] | None = None) -> None:
        self.device = device
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._backing = Pages(self.size, _READ_WRITE)
        self._reserved = Pages(self.size, _NO_ACCESS) if opaque else self._backing
        self.base = self._reserved.address
        self.end = self.base + self.size
        self.delta = self._backing.address - self.base
        self.blocks = Blocks(everywhere)
        self.used = 0
        # starts of blocks freed lately, to tell a stale address from a wild one
        self.freed: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.Lock()
        # free ranges by address, no two of them adjacent
        self._free_starts = [self.base]
        self._free_sizes = {self.base: self.size}

    @property
    def free(self) -> int:
        """Bytes not allocated (fragmentation may keep them from being one block)."""
        return self.size - self.used

    def allocate(self, size: int, extra: int = 32, internal: bool = False) -> Block:
        """A block of `size` bytes; the runtime rounds up to 32 and adds `extra` (reference §8)."""
        usable = -(-size // 32) * 32 + extra
        span = -(-usable // ALIGNMENT) * ALIGNMENT
        with self._lock:
            for position, start in enumerate(self._free_starts):
                room = self._free_sizes[start]
                if room < span:
                    continue
                del self._free_sizes[start]
                if room == span:
                    del self._free_starts[position]
                else:
                    self._free_starts[position] = start + span
                    self._free_sizes[start + span] = room - span
                break
            else:
                raise Failure(
                    codes.MEMORY_ALLOCATION,
                    f"out of memory on device {self.device}: {size} bytes wanted, {self.free} of {self.size} free",
                )
            self.used += span
            self.freed.pop(start, None)
        block = Block(start, usable, size, self.delta, self.device, self)
        block.internal = internal
        self.blocks.add(block)
        return block

    def release(self, start: int) -> Block | None:
        """Free the block that starts at `start`; None when there is none."""
        block = self.blocks.remove(start)
        if block is None:
            return None
        span = -(-block.size // ALIGNMENT) * ALIGNMENT
        if span >= _GIVE_BACK:
            self._give_back(start, span)
        with self._lock:
            self.freed[start] = None
            if len(self.freed) > _FREED:
                self.freed.popitem(last=False)
            self.used -= span
            position = bisect_left(self._free_starts, start)
            if position < len(self._free_starts) and self._free_starts[position] == start + span:
                span += self._free_sizes.pop(self._free_starts.pop(position))
            if position > 0:
                before = self._free_starts[position - 1]
                if before + self._free_sizes[before] == start:
                    self._free_sizes[before] += span
                    return block
            self._free_starts.insert(position, start)
            self._free_sizes[start] = span
        return block

    def close(self) -> None:
        """Forget every block and give the pages back. The address range stays reserved."""
        starts = [block.start for block in self.blocks][-_FREED:]
        self.blocks.clear()
        with self._lock:
            self.freed.update(dict.fromkeys(starts))
            self.used = 0
            self._free_starts = [self.base]
            self._free_sizes = {self.base: self.size}
        _madvise(self.base + self.delta, self.size, _DONTNEED)

    def _give_back(self, start: int, span: int) -> None:
        page = mmap.PAGESIZE
        first = -(-(start + self.delta) // page) * page
        last = (start + self.delta + span) // page * page
        if last > first:
            _madvise(first, last - first, _DONTNEED)


class FreedPinned:
    """Page-locked memory freed lately: the ranges stay mapped, without their contents.

    Nothing else is mapped at these addresses meanwhile, so that a use after free is told from other host memory, and
    neither it nor a copy in progress is a segmentation fault.
    """

    def __init__(self, most: int = _FREED, most_bytes: int = _FREED_PINNED_BYTES) -> None:
        self._blocks = Blocks()
        self._order: deque[Block] = deque()
        self._bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()

    def keep(self, block: Block) -> None:
        """Keep a freed block's pages, and forget the oldest."""
        if not isinstance(block.owner, Pages):
            return  # memory of the program's own that was registered
        _madvise(block.start, block.size, _DONTNEED)
        with self._lock:
            self._blocks.add(block)
            block.alive = False
            self._order.append(block)
            self._bytes += block.size
            while len(self._order) > self._most or (self._bytes > self._most_bytes and len(self._order) > 1):
                oldest = self._order.popleft()
                self._blocks.remove(oldest.start)
                self._bytes -= oldest.size

    def find(self, address: int) -> Block | None:
        """The freed block that `address` lies in."""
        return self._blocks.find(address) if self._order else None


def allocate_pinned(size: int) -> Block:
    """Page-locked host memory; `Failure` when the system has none."""
    try:
        pages = Pages(size, _READ_WRITE)
    except MemoryError as error:
        raise Failure(codes.MEMORY_ALLOCATION, f"out of page-locked host memory: {error}") from None
    return Block(pages.address, pages.size, size, 0, -1, pages)
