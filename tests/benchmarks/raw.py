"""Requests by raw `acl` calls, one after the other: what the published figures start from."""

from __future__ import annotations

import ctypes
from typing import Any

from aioascend.emulator import Emulator

__all__ = ["RawModel", "ok"]

_H2D, _D2H = 1, 2


def ok(result: Any) -> Any:
    """The value before a status of 0."""
    *values, code = result if isinstance(result, tuple) else (result,)
    if code:
        raise RuntimeError(f"a call gave {code}")
    return values[0] if values else None


class RawModel:
    """A model on one stream. `pinned`: host buffers are page-locked; `reuse`: device buffers are kept between runs."""

    def __init__(
        self, emulator: Emulator, content: bytes, given: int, taken: int, *, pinned: bool = True, reuse: bool = True
    ) -> None:
        self._acl = acl = emulator.acl
        self._reuse = reuse
        self._sizes = (given, taken)
        acl.init()  # or it was initialised before
        ok(acl.rt.set_device(0))  # counted: a session that closes meanwhile does not take the device away
        self._context = ok(acl.rt.create_context(0))
        self._content = content
        self._model = ok(acl.mdl.load_from_mem(acl.util.bytes_to_ptr(content), len(content)))
        self._stream = ok(acl.rt.create_stream())
        self._pageable = [bytearray(size) for size in self._sizes]
        self._pinned = [ok(acl.rt.malloc_host(size)) for size in self._sizes] if pinned else []
        self.host = self._pinned or [_address(buffer) for buffer in self._pageable]
        self.device: list[int] = []
        self._datasets: list[tuple[int, int]] = []
        if reuse:
            self._allocate()

    def _allocate(self) -> None:
        acl = self._acl
        self.device = [ok(acl.rt.malloc(size, 0)) for size in self._sizes]
        self._datasets = []
        for pointer, size in zip(self.device, self._sizes, strict=True):
            dataset, buffer = acl.mdl.create_dataset(), acl.create_data_buffer(pointer, size)
            ok(acl.mdl.add_dataset_buffer(dataset, buffer))
            self._datasets.append((dataset, buffer))

    def _free(self) -> None:
        acl = self._acl
        for dataset, buffer in self._datasets:
            ok(acl.destroy_data_buffer(buffer))
            ok(acl.mdl.destroy_dataset(dataset))
        for pointer in self.device:
            ok(acl.rt.free(pointer))

    def enter(self) -> None:
        """Make the context current on this thread."""
        ok(self._acl.rt.set_context(self._context))

    def run(self) -> None:
        """Copy in, run, copy out, and wait for it."""
        rt = self._acl.rt
        if not self._reuse:
            self._allocate()
        (given, taken), (host_in, host_out), (device_in, device_out) = self._sizes, self.host, self.device
        if self._pinned:
            ok(rt.memcpy_async(device_in, given, host_in, given, _H2D, self._stream))
            ok(self._acl.mdl.execute_async(self._model, self._datasets[0][0], self._datasets[1][0], self._stream))
            ok(rt.memcpy_async(host_out, taken, device_out, taken, _D2H, self._stream))
            ok(rt.synchronize_stream(self._stream))
        else:
            ok(rt.memcpy(device_in, given, host_in, given, _H2D))
            ok(self._acl.mdl.execute_async(self._model, self._datasets[0][0], self._datasets[1][0], self._stream))
            ok(rt.synchronize_stream(self._stream))
            ok(rt.memcpy(host_out, taken, device_out, taken, _D2H))
        if not self._reuse:
            self._free()

    def close(self) -> None:
        """Release everything."""
        acl = self._acl
        self.enter()
        if self._reuse:
            self._free()
        for pointer in self._pinned:
            ok(acl.rt.free_host(pointer))
        ok(acl.rt.destroy_stream(self._stream))
        ok(acl.mdl.unload(self._model))
        ok(acl.rt.destroy_context(self._context))
        ok(acl.rt.reset_device(0))


def _address(buffer: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
