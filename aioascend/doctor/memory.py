"""Memory: alignment, copies from memory that is not pinned, what is refused, how much there is."""

from __future__ import annotations

import ctypes
import time

from .bench import Bench, code_text
from .checks import Group, Seen

__all__ = ["MEMORY"]

MEMORY = Group("memory")

_H2H, _TO_DEVICE, _TO_HOST, _D2D = 0, 1, 2, 3
_SIZE = 1 << 20


def _pattern(size: int) -> bytes:
    return bytes(range(251)) * (size // 251 + 1)


def _read(bench: Bench, device: int, size: int) -> bytes:
    acl = bench.acl
    pinned = bench.malloc_host(size)
    ret = acl.rt.memcpy(pinned, size, device, size, _TO_HOST)
    bench.good(ret, "acl.rt.memcpy to the host")
    return ctypes.string_at(pinned, size)


@MEMORY.check("memory of rt.malloc and rt.malloc_host starts at a multiple of 64", "§8", "it does")
def _aligned(bench: Bench) -> str:
    odd = [
        address
        for size in (1, 31, 33, 100, 4097)
        for address in (bench.malloc(size), bench.malloc_host(size))
        if address % 64
    ]
    return f"not: {odd[0]:#x}" if odd else "it does"


@MEMORY.check("which memory rt.get_mem_info knows: 0 is DDR, 1 is HBM", "§8", "0", "1", "0 and 1")
def _mem_info(bench: Bench) -> Seen:
    acl = bench.acl
    known, sizes = [], []
    for attribute in (0, 1):
        free, total, ret = acl.rt.get_mem_info(attribute)
        if ret == 0 and total:
            known.append(str(attribute))
            sizes.append(f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    return Seen(" and ".join(known) or "neither", ", ".join(sizes))


@MEMORY.check("rt.malloc of 0 bytes is refused", "§8", "100000")
def _malloc_nothing(bench: Bench) -> str:
    acl = bench.acl
    address, ret = acl.rt.malloc(0, 0)
    if not ret:
        acl.rt.free(address)
    return code_text(ret)


@MEMORY.check("more memory than there is", "§8", "207001")
def _out_of_memory(bench: Bench) -> str:
    acl = bench.acl
    address, ret = acl.rt.malloc(1 << 46, 0)
    if not ret:
        acl.rt.free(address)
    return code_text(ret)


@MEMORY.check("rt.free of address 0 is refused", "§8", "100000")
def _free_nothing(bench: Bench) -> str:
    acl = bench.acl
    ret = acl.rt.free(0)
    return code_text(ret)


@MEMORY.check("a copy that is larger than its target is refused, one of 0 bytes is not", "§8", "107000, 0")
def _bounds(bench: Bench) -> str:
    acl = bench.acl
    device, pinned = bench.malloc(64), bench.malloc_host(64)
    large = acl.rt.memcpy(device, 16, pinned, 32, _TO_DEVICE)
    nothing = acl.rt.memcpy(device, 16, pinned, 0, _TO_DEVICE)
    return f"{large}, {nothing}"


def _there_and_back(bench: Bench, there: int, back: int) -> str:
    """Copy a pattern to the device and into `back`, on one stream, and say which bytes arrived."""
    acl = bench.acl
    stream, device = bench.stream(), bench.malloc(_SIZE)
    wanted = _pattern(_SIZE)[:_SIZE]
    ctypes.memmove(there, wanted, _SIZE)
    ret = acl.rt.memcpy_async(device, _SIZE, there, _SIZE, _TO_DEVICE, stream)
    bench.good(ret, "acl.rt.memcpy_async to the device")
    ret = acl.rt.memcpy_async(back, _SIZE, device, _SIZE, _TO_HOST, stream)
    bench.good(ret, "acl.rt.memcpy_async to the host")
    ret = acl.rt.synchronize_stream(stream)
    bench.good(ret, "acl.rt.synchronize_stream")
    return "the right bytes" if ctypes.string_at(back, _SIZE) == wanted else "wrong bytes"


@MEMORY.check("copies in and out through pinned memory, on a stream", "§8", "the right bytes")
def _pinned(bench: Bench) -> str:
    return _there_and_back(bench, bench.malloc_host(_SIZE), bench.malloc_host(_SIZE))


@MEMORY.check("a copy from pinned memory is queued, not made at once", "§8, §17", "it returns before")
def _asynchronous(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    pinned, device = bench.malloc_host(_SIZE), bench.malloc(_SIZE)
    bench.busy(stream, 0.3)
    ret = acl.rt.memcpy_async(device, _SIZE, pinned, _SIZE, _TO_DEVICE, stream)
    bench.good(ret, "acl.rt.memcpy_async")
    status, ret = acl.rt.stream_query(stream)
    bench.good(ret, "acl.rt.stream_query")
    return "it returns before" if status == 1 else "it waited for the stream"


@MEMORY.check("a copy from memory that is not pinned waits for its stream", "§8, §19", "it waits")
def _pageable_waits(bench: Bench) -> Seen:
    acl = bench.acl
    stream = bench.stream()
    device, host = bench.malloc(_SIZE), bench.pageable(_SIZE)
    bench.busy(stream, 0.3)
    started = time.perf_counter()
    ret = acl.rt.memcpy_async(device, _SIZE, host, _SIZE, _TO_DEVICE, stream)
    took = time.perf_counter() - started
    bench.good(ret, "acl.rt.memcpy_async of pageable memory")
    status, ret = acl.rt.stream_query(stream)
    bench.good(ret, "acl.rt.stream_query")
    return Seen("it waits" if status == 0 else "it is queued", f"{took * 1e3:.0f} ms")


@MEMORY.check("copies from and to memory that is not pinned move the right bytes", "§8", "the right bytes")
def _pageable_bytes(bench: Bench) -> str:
    return _there_and_back(bench, bench.pageable(_SIZE), bench.pageable(_SIZE))


@MEMORY.check(
    "rt.memcpy_async from host to host is refused where the device is behind PCIe", "§8", "207000", "run mode 0"
)
def _host_to_host(bench: Bench) -> str:
    acl = bench.acl
    mode, ret = acl.rt.get_run_mode()
    bench.good(ret, "acl.rt.get_run_mode")
    if mode == 0:
        return "run mode 0"
    one, other = bench.malloc_host(64), bench.malloc_host(64)
    ret = acl.rt.memcpy_async(one, 64, other, 64, _H2H, bench.stream())
    return code_text(ret)


@MEMORY.check("copies whose ends are not aligned move the right bytes", "§8", "the right bytes")
def _unaligned(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    there, back, device = bench.malloc_host(_SIZE), bench.malloc_host(_SIZE), bench.malloc(_SIZE)
    wanted = _pattern(_SIZE)[: _SIZE - 64]
    ctypes.memmove(there + 1, wanted, len(wanted))
    for offset, size in ((3, 1001), (64, 333)):
        ret = acl.rt.memcpy_async(device + offset, size, there + 1, size, _TO_DEVICE, stream)
        bench.good(ret, "acl.rt.memcpy_async to the device")
        ret = acl.rt.memcpy_async(back + 5, size, device + offset, size, _TO_HOST, stream)
        bench.good(ret, "acl.rt.memcpy_async to the host")
        ret = acl.rt.synchronize_stream(stream)
        bench.good(ret, "acl.rt.synchronize_stream")
        if ctypes.string_at(back + 5, size) != wanted[:size]:
            return f"wrong bytes at offset {offset}"
    return "the right bytes"


@MEMORY.check("a copy on the device moves the right bytes", "§8", "the right bytes")
def _on_device(bench: Bench) -> str:
    acl = bench.acl
    one, other, pinned = bench.malloc(_SIZE), bench.malloc(_SIZE), bench.malloc_host(_SIZE)
    wanted = _pattern(_SIZE)[:_SIZE]
    ctypes.memmove(pinned, wanted, _SIZE)
    ret = acl.rt.memcpy(one, _SIZE, pinned, _SIZE, _TO_DEVICE)
    bench.good(ret, "acl.rt.memcpy to the device")
    ret = acl.rt.memcpy(other, _SIZE, one, _SIZE, _D2D)
    bench.good(ret, "acl.rt.memcpy on the device")
    return "the right bytes" if _read(bench, other, _SIZE) == wanted else "wrong bytes"


@MEMORY.check("rt.free does not wait for the device", "§8", "not waited for")
def _free_waits(bench: Bench) -> str:
    acl = bench.acl
    stream = bench.stream()
    address, ret = acl.rt.malloc(_SIZE, 0)
    bench.good(ret, "acl.rt.malloc")
    bench.busy(stream, 0.3)
    ret = acl.rt.free(address)
    bench.good(ret, "acl.rt.free")
    status, ret = acl.rt.stream_query(stream)
    bench.good(ret, "acl.rt.stream_query")
    return "not waited for" if status == 1 else "the device was waited for"
