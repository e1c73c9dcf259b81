"""Leases on blocks of device memory and of pinned (page-locked) host memory, and numpy views of the latter."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import StaleLease
from .books import Entry

if TYPE_CHECKING:
    from .pool import MemoryPool

__all__ = ["Array", "ArrayInterface", "DeviceBlock", "PinnedBlock", "array_at"]

Array = np.ndarray[Any, np.dtype[Any]]


class DeviceBlock:
    """A lease on `nbytes` bytes of device memory at `address`, contents undefined; from `pool.MemoryPool`.

    Ends by `release`, as a context manager, or with `release_with` by garbage collection: once, whatever comes first.
    Whoever ends it sees to it that no queued work refers to the memory any more, since the next holder may use it on
    another stream at once: the host must have seen the last use end (an event or a stream that was waited for).
    """

    what = "device memory"

    __slots__ = ("__weakref__", "_entry", "_pool", "address", "generation", "nbytes")

    def __init__(self, pool: MemoryPool[Any], entry: Entry) -> None:
        self._pool = pool
        self._entry = [entry]  # taken out by whoever ends the lease: only one thread gets it
        self.address = entry.address
        self.nbytes = entry.asked
        self.generation = entry.generation

    @property
    def place(self) -> str | None:
        """Where it was asked for, if that is known; None after the end of the lease."""
        return next((entry.place for entry in self._entry), None)

    def check(self) -> None:
        """Raise `StaleLease` when the lease has ended, or the context that the memory belongs to is gone."""
        if not self._entry:
            raise StaleLease(f"this {self.what} was given back; take new one")
        if self.generation != self._pool.generation:
            raise StaleLease(f"this {self.what} belongs to an earlier context of {self._pool.device}, which is gone")

    def release(self) -> None:
        """Give the memory back to the pool; from any thread, finalizers included. A second call does nothing.

        Makes no ACL call: what the pool does not keep is freed on the control thread.
        """
        self.address = 0
        try:
            entry = self._entry.pop()
        except IndexError:
            return
        self._pool.give(entry)

    def release_with(self, owner: object) -> None:
        """End the lease when `owner` is collected, if not before; `owner` may refer to the lease, never the reverse."""
        weakref.finalize(owner, self.release).atexit = False

    def abandon(self) -> None:
        """Leave the memory behind, neither lent again nor freed: a stream that hangs may touch it for ever."""
        self.address = 0
        try:
            entry = self._entry.pop()
        except IndexError:
            return
        self._pool.forget(entry)

    def __enter__(self) -> DeviceBlock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class PinnedBlock(DeviceBlock):
    """The same on page-locked host memory, zeroed when it is lent: padding carries nothing from its earlier use."""

    what = "pinned memory"

    __slots__ = ("_host_access",)

    def __init__(self, pool: MemoryPool[Any], entry: Entry) -> None:
        super().__init__(pool, entry)
        self._host_access = pool.host_access

    def host_access(self, *, write: bool) -> None:
        """Announce that the host is about to touch it: no queued work may be in the way."""
        self._host_access(self.address, self.nbytes, write)


class ArrayInterface:
    """Memory at an address, in the form numpy takes (`__array_interface__`, version 3)."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def array_at(address: int, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], nbytes: int) -> Array:
    """A writable C-contiguous array over `nbytes` bytes at ``address + offset``; it does not keep the memory alive."""
    if nbytes == 0:
        return np.empty(shape, dtype)
    raw: Array = np.asarray(ArrayInterface(address + offset, nbytes))
    return raw.view(dtype).reshape(shape)
