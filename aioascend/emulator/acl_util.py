"""``acl.util``: addresses of Python objects, threads (reference §13)."""

from __future__ import annotations

import ctypes
import errno
import logging
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy

from .args import call
from .process import Process

logger = logging.getLogger("aioascend.emulator")
_KINDS = "?bBhHiIlLqQefdFD"
_BY_NUMBER: dict[int, numpy.dtype[Any]] = {numpy.dtype(kind).num: numpy.dtype(kind) for kind in _KINDS}


class _Started:
    """A thread of `start_thread`."""

    def __init__(self, function: Callable[..., Any], arguments: Any) -> None:
        self.error: BaseException | None = None
        self._function = function
        self._arguments = arguments
        self.thread = threading.Thread(target=self._run, name="acl.util.start_thread", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            if self._arguments is None:
                self._function()
            else:
                self._function(self._arguments)
        except BaseException as error:
            # stop_thread tells it again, if the program ever comes to that
            self.error = error
            logger.error("the function given to acl.util.start_thread raised, its thread ends", exc_info=error)


class UtilCalls:
    """Helpers."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._started: dict[int, _Started] = {}

    @call("CO", failed=(0,))
    def start_thread(self, function: Any, arguments: Any) -> tuple[int, int]:
        """Run ``function(arguments)`` on a new thread; gives its pthread id."""
        started = _Started(function, arguments)
        ident = started.thread.ident
        assert ident is not None
        self._started[ident] = started
        return ident, 0

    @call("k")
    def stop_thread(self, thread: int) -> int:
        """Wait for a thread of `start_thread` to end by itself; `RuntimeError` if its function raised."""
        started = self._started.pop(thread, None)
        if started is None:
            return errno.ESRCH
        started.thread.join()
        if started.error is not None:
            raise RuntimeError(f"the thread's function raised {started.error!r}") from started.error
        return 0

    @call("O", bare=0)
    def bytes_to_ptr(self, data: Any) -> int:
        """Address of a bytes object's own storage; keep the object."""
        if not isinstance(data, bytes):
            raise TypeError(f"acl.util.bytes_to_ptr: args could not be parsed: bytes wanted, not {type(data).__name__}")
        address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
        self._process.host_objects.keep(address, data, len(data))
        return address

    @call("kk", bare=b"")
    def ptr_to_bytes(self, address: int, size: int) -> bytes:
        """Copy of host memory."""
        self._host(address, size, "ptr_to_bytes")
        if self._process.races is not None:
            block = self._process.pinned.find(address)
            self._process.races.host(block, address, size, False, "acl.util.ptr_to_bytes")
        return ctypes.string_at(address, size)

    @call("O", bare=0)
    def numpy_to_ptr(self, array: Any) -> int:
        """Address of an array's data; deprecated, and wrong for arrays that are not contiguous."""
        warnings.warn("acl.util.numpy_to_ptr is deprecated, use bytes_to_ptr", DeprecationWarning, stacklevel=3)
        return self._kept(self._array(array, "numpy_to_ptr"))

    @call("O", bare=(0, None))
    def numpy_contiguous_to_ptr(self, array: Any) -> tuple[int, Any]:
        """Address of the array made contiguous, and that array, which must be kept."""
        contiguous = numpy.ascontiguousarray(self._array(array, "numpy_contiguous_to_ptr"))
        return self._kept(contiguous), contiguous

    @call("kOi", bare=None)
    def ptr_to_numpy(self, address: int, shape: Any, number: int) -> Any:
        """View of host memory; `number` is numpy's number of the dtype, not ACL's."""
        if not isinstance(shape, tuple):
            raise TypeError(
                f"acl.util.ptr_to_numpy: args could not be parsed: a tuple wanted, not {type(shape).__name__}"
            )
        dtype = _BY_NUMBER.get(number)
        if dtype is None:
            raise ValueError(f"acl.util.ptr_to_numpy: numpy has no dtype number {number}")
        count = 1
        for size in shape:
            count *= int(size)
        self._host(address, count * dtype.itemsize, "ptr_to_numpy")
        if count == 0:
            return numpy.empty(shape, dtype)
        buffer = memoryview((ctypes.c_char * (count * dtype.itemsize)).from_address(address))
        return numpy.frombuffer(buffer, dtype=dtype).reshape(shape)

    def _kept(self, array: Any) -> int:
        address = int(array.ctypes.data)
        if array.flags.c_contiguous:
            self._process.host_objects.keep(address, array, array.nbytes)
        return address

    def _array(self, array: Any, name: str) -> Any:
        if not isinstance(array, numpy.ndarray):
            raise TypeError(f"acl.util.{name}: args could not be parsed: an array wanted, not {type(array).__name__}")
        return array

    def _host(self, address: int, size: int, name: str) -> None:
        # on hardware this is a segmentation fault
        device = self._process.device_of(address)
        if address == 0 or (device is not None and not device.host_memory):
            raise ValueError(f"acl.util.{name}: {address:#x} is not host memory")
        if size > 0:
            self._process.block_of(address, size)
