"""The pools of one device: device memory and pinned host memory, kept for the next who asks instead of freed.

`books` decides; here are the driver's calls, a lock, and the ways back from any thread. Memory is allocated and freed
on the control thread only. What comes back is put down without a lock first: a finalizer may run in the middle of
anything, on a thread that holds it.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from ..driver import Driver
from ..driver.constants import MallocPolicy
from ..errors import OutOfMemory
from ..telemetry.statistics import MemoryStatistics, PoolStatistics
from .blocks import DeviceBlock, PinnedBlock
from .books import Books, Entry, Limits
from .classes import size_class
from .tracing import caller, told, tracing

__all__ = ["DevicePool", "MemoryPool", "PinnedPool", "Pools"]

logger = logging.getLogger("aioascend.memory")

B = TypeVar("B", bound=DeviceBlock)
Quietly = Callable[..., object]

# Idle device memory is missing to others on the device, idle pinned memory to the whole machine (reference §8).
_DEVICE_LIMITS = Limits(depth=64, nbytes=512 << 20)
_PINNED_LIMITS = Limits(depth=64, nbytes=256 << 20)
_HUGE_FIRST = int(MallocPolicy.HUGE_FIRST)
_LOOK_S = 0.02


class MemoryPool(ABC, Generic[B]):
    """One kind of memory of one device.

    `quietly` runs a call whose failure is noted and stops nothing; `dispose`, called on any thread, has `sweep` run on
    the control thread soon.
    """

    def __init__(self, driver: Driver, limits: Limits, quietly: Quietly, dispose: Callable[[], None]) -> None:
        self._driver = driver
        self.device = driver.device
        self.host_access = driver.host_access
        self.tracing = False
        self._books = Books(limits)
        self._lock = threading.Lock()
        self._returned: deque[Entry] = deque()
        self._superfluous: deque[Entry] = deque()
        self._quietly = quietly
        self._dispose = dispose

    @property
    def generation(self) -> int:
        """Of the context that blocks belong to; 0 while there is none."""
        return self._books.generation

    # -- from any thread --------------------------------------------------------------------------------------------

    def take_idle(self, nbytes: int, place: str | None = None) -> B | None:
        """An idle block for `nbytes` bytes, or None where `take` has to be called; no ACL call, from any thread.

        `place` says for reports of leaks where it was asked for; None looks for the caller, where that is traced.
        """
        place = self._placed(place)
        with self._lock:
            self._settle()
            entry = self._books.take(nbytes, place) if self._books.generation else None
        if self._superfluous:
            self._dispose()
        return None if entry is None else self._lent(entry)

    def give(self, entry: Entry) -> None:
        """A lease has ended, and nothing refers to the block any more; from any thread, finalizers included."""
        self._returned.append(entry)
        if self._lock.acquire(blocking=False):  # else whoever takes the lock next finds it
            try:
                self._settle()
            finally:
                self._lock.release()
        if self._superfluous:
            self._dispose()

    def statistics(self) -> PoolStatistics:
        """The figures; from any thread, finalizers included."""
        locked = self._lock.acquire(
            timeout=_LOOK_S
        )  # else this thread has it, perhaps, and is in the middle of a change
        try:
            if locked:
                self._settle()
            return self._books.statistics()
        finally:
            if locked:
                self._lock.release()

    def forget(self, entry: Entry) -> None:
        """A lease has ended, but a stream that hangs may touch the block for ever."""
        with self._lock:
            self._books.forget(entry)

    def _settle(self) -> None:
        """Enter what has come back. The lock is held."""
        while self._returned:
            self._superfluous.extend(self._books.give(self._returned.popleft()))

    def _placed(self, place: str | None) -> str | None:
        return caller() if place is None and self.tracing else place

    # -- control thread ---------------------------------------------------------------------------------------------

    def take(self, nbytes: int, place: str | None = None) -> B:
        """A block for `nbytes` bytes: an idle one, else a new one of its size class; control thread.

        Where the driver refuses that, the `nbytes` bytes alone are asked for, in normal pages. Raises `OutOfMemory`
        when there is no memory: call it through `Relief.retrying`, which has idle blocks freed and tries once more.
        """
        place = self._placed(place)
        block = self.take_idle(nbytes, place)
        if block is not None:
            return block
        self.sweep()
        size = size_class(nbytes)
        try:
            address = self._malloc(size)
        except OutOfMemory:
            if size == nbytes and self._least is None:
                raise
            size = nbytes
            address = self._malloc(size, self._least)
        with self._lock:
            entry = self._books.made(address, size, nbytes, place)
        return self._lent(entry)

    def sweep(self) -> int:
        """Free what the pool does not keep; how many bytes that were. Control thread."""
        freed = 0
        while self._superfluous:
            entry = self._superfluous.popleft()
            freed += entry.size
            self._quietly(self._free, entry.address)
        return freed

    def trim(self) -> int:
        """Free every idle block; how many bytes that were. Control thread."""
        with self._lock:
            self._settle()
            self._superfluous.extend(self._books.trim())
        return self.sweep()

    def open(self, generation: int) -> None:
        """Serve a new context; control thread."""
        self.tracing = tracing()
        with self._lock:
            self._books.generation = generation

    def close(self, *, stuck: bool) -> None:
        """The context goes: free every idle block, and lend none until `open`; control thread.

        `stuck` tells that a stream hangs which may touch what is lent.
        """
        with self._lock:
            self._settle()
            self._books.generation = 0  # what comes back before the next context is not kept
            self._superfluous.extend(self._books.trim())
            if not self._outlives_context:
                lent = self._books.lent()
                for entry in lent:
                    self._books.forget(entry)
                if not stuck:
                    self._superfluous.extend(lent)
        self.sweep()

    def report(self) -> None:
        """Log a warning for every block that is lent: the device is being closed, and nobody should have one."""
        with self._lock:
            self._settle()
            lent = [(entry.asked, entry.place) for entry in self._books.lent()]
        for nbytes, place in lent:
            logger.warning(
                "%s is closed with %d bytes of %s not released, %s", self.device, nbytes, self.what, told(place)
            )

    _least: int | None  # the policy of a second attempt that the driver may not refuse
    _outlives_context: bool
    what: str

    @abstractmethod
    def _malloc(self, size: int, policy: int | None = None) -> int: ...

    @abstractmethod
    def _free(self, address: int) -> None: ...

    @abstractmethod
    def _lent(self, entry: Entry) -> B: ...


class DevicePool(MemoryPool[DeviceBlock]):
    """Device memory, in huge pages where there are some; it goes with its context, and leases on it are stale then."""

    what = DeviceBlock.what
    _least = int(MallocPolicy.NORMAL_ONLY)
    _outlives_context = False

    def _malloc(self, size: int, policy: int | None = None) -> int:
        return self._driver.malloc(size, _HUGE_FIRST if policy is None else policy)

    def _free(self, address: int) -> None:
        self._driver.free(address)

    def _lent(self, entry: Entry) -> DeviceBlock:
        return DeviceBlock(self, entry)


class PinnedPool(MemoryPool[PinnedBlock]):
    """Page-locked host memory; it outlives its context, because arrays over it cannot be taken back."""

    what = PinnedBlock.what
    _least = None
    _outlives_context = True

    def _malloc(self, size: int, policy: int | None = None) -> int:
        return self._driver.malloc_host(size)

    def _free(self, address: int) -> None:
        self._driver.free_host(address)

    def _lent(self, entry: Entry) -> PinnedBlock:
        block = PinnedBlock(self, entry)
        block.host_access(write=True)
        ctypes.memset(block.address, 0, block.nbytes)
        return block


class Pools:
    """Both pools of one device; `quietly` and `dispose` as for `MemoryPool`."""

    def __init__(self, driver: Driver, quietly: Quietly, dispose: Callable[[], None]) -> None:
        self.device = DevicePool(driver, _DEVICE_LIMITS, quietly, dispose)
        self.pinned = PinnedPool(driver, _PINNED_LIMITS, quietly, dispose)

    @property
    def tracing(self) -> bool:
        """Whether leases remember where they were asked for."""
        return self.device.tracing

    def statistics(self) -> MemoryStatistics:
        """The figures of both; from any thread, finalizers included."""
        return MemoryStatistics(self.device.statistics(), self.pinned.statistics())

    def open(self, generation: int) -> None:
        """Serve a new context; control thread."""
        self.device.open(generation)
        self.pinned.open(generation)

    def close(self, *, stuck: bool) -> None:
        """The context goes, and device memory with it; control thread."""
        self.device.close(stuck=stuck)
        self.pinned.close(stuck=stuck)

    def report(self) -> None:
        """Log a warning for every lease that is alive when the device is closed."""
        self.device.report()
        self.pinned.report()

    def trim(self) -> int:
        """Free every idle block; how many bytes that were. Control thread."""
        return self.device.trim() + self.pinned.trim()

    def sweep(self) -> None:
        """Free what the pools do not keep; control thread."""
        self.device.sweep()
        self.pinned.sweep()
