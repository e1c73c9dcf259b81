"""Blocks of device memory and of pinned (page-locked) host memory, and numpy views of the latter."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..driver import Driver

__all__ = ["Array", "ArrayInterface", "DeviceBlock", "PinnedBlock", "array_at"]

Array = np.ndarray[Any, np.dtype[Any]]


class DeviceBlock:
    """One block of device memory; made and freed on the control thread."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self._driver = driver
        self.nbytes = nbytes
        self.address = driver.malloc(nbytes)

    def free(self) -> None:
        """Free it; no queued work may refer to it. A second call does nothing."""
        if self.address:
            address, self.address = self.address, 0
            self._driver.free(address)


class PinnedBlock:
    """One block of page-locked host memory, zeroed so that padding carries nothing from its earlier use."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self._driver = driver
        self.nbytes = nbytes
        self.address = driver.malloc_host(nbytes)
        self.host_access(write=True)
        ctypes.memset(self.address, 0, nbytes)

    def host_access(self, *, write: bool) -> None:
        """Announce that the host is about to touch it: no queued work may be in the way."""
        self._driver.host_access(self.address, self.nbytes, write)

    def free(self) -> None:
        """Free it; no queued work and no array may refer to it. A second call does nothing."""
        if self.address:
            address, self.address = self.address, 0
            self._driver.free_host(address)


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
