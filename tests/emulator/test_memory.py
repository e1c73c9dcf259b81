"""Device and pinned memory, copies (pyACL reference §8)."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator
from aioascend.emulator.args import Failure
from aioascend.emulator.memory import DeviceMemory

from .kit import Driver

MIB = 1 << 20


def test_device_memory_is_aligned_and_counted(npu: Driver) -> None:
    free, total, _ = npu.rt.get_mem_info(1)
    addresses = [npu.device(size) for size in (1, 31, 64, 100, 4097)]
    assert all(address % 64 == 0 for address in addresses)
    assert len(set(addresses)) == 5
    assert npu.rt.get_mem_info(1)[0] < free
    for address in addresses:
        npu.ok(npu.rt.free(address))
    assert npu.rt.get_mem_info(0) == (total, total, 0)


def test_out_of_memory_is_a_code_and_the_device_stays_usable(npu: Driver) -> None:
    assert npu.rt.malloc(1 << 40, 0) == (0, 207001)
    assert "wanted" in npu.acl.get_recent_err_msg()
    big = npu.device(200 * MIB)
    assert npu.rt.malloc(100 * MIB, 0) == (0, 207001)
    npu.ok(npu.rt.free(big))
    assert npu.device(200 * MIB)


def test_memory_needs_a_context_and_a_size(npu: Driver) -> None:
    assert npu.rt.malloc(0, 0) == (0, 100000)
    assert npu.rt.malloc_host(0) == (0, 100000)
    codes: list[object] = []
    thread = threading.Thread(target=lambda: codes.append(npu.rt.malloc(64, 0)))
    thread.start()
    thread.join()
    assert codes == [(0, 107002)]


def test_freeing_what_is_not_allocated_gives_a_code(npu: Driver) -> None:
    address = npu.device(100)
    assert npu.rt.free(0) == 100000
    assert npu.rt.free(address + 64) == 107000
    npu.ok(npu.rt.free(address))
    assert npu.rt.free(address) == 107000
    assert npu.rt.free(12345) == 107000
    pinned, _ = npu.pinned(np.zeros(4))
    assert npu.rt.free_host(pinned + 64) == 107000
    npu.ok(npu.rt.free_host(pinned))
    assert npu.rt.free_host(pinned) == 107000
    assert npu.rt.free_host(0) == 100000


def test_a_copy_there_and_back(npu: Driver) -> None:
    data = np.random.default_rng(0).integers(0, 255, 3 * MIB).astype(np.uint8)
    address = npu.upload(data)
    assert np.array_equal(npu.download(address, data), data)
    other = npu.device(data.nbytes)
    npu.ok(npu.rt.memcpy(other, data.nbytes, address, data.nbytes, 3))
    assert np.array_equal(npu.download(other, data), data)


def test_a_copy_inside_a_block(npu: Driver) -> None:
    address = npu.upload(np.arange(16, dtype=np.int64))
    assert npu.download(address + 64, np.zeros(2, np.int64)).tolist() == [8, 9]


def test_copies_are_checked(npu: Driver) -> None:
    address, (host, _) = npu.device(64), npu.pinned(np.zeros(64))
    stream = npu.stream()
    for copy in (npu.rt.memcpy, lambda *a: npu.rt.memcpy_async(*a, stream)):
        assert copy(address, 32, host, 33, 1) == 107000
        assert copy(address, 32, host, 0, 1) == 0
        assert copy(0, 32, host, 32, 1) == 100000
        assert copy(address, 32, 0, 32, 1) == 100000
        assert copy(address, 32, host, 32, 99) == 107000
        assert copy(address, 1000, host, 500, 1) == 107000
        assert "beyond the end" in npu.acl.get_recent_err_msg()
    npu.ok(npu.rt.free(address))
    assert npu.rt.memcpy(address, 32, host, 32, 1) == 107000
    assert npu.rt.memcpy_async(address, 32, host, 32, 1, stream) == 107000


def test_memory_freed_while_a_copy_is_queued_fails_the_copy(npu: Driver) -> None:
    stream, (source, _) = npu.stream(), npu.pinned(np.ones(4))
    target, other = npu.device(32), npu.device(32)
    release = npu.hold(stream)
    npu.ok(npu.rt.memcpy_async(target, 32, source, 32, 1, stream))
    npu.ok(npu.rt.memcpy_async(other, 32, source, 32, 1, stream))
    npu.ok(npu.rt.free(target))
    npu.ok(npu.rt.free_host(source))
    release()
    assert npu.rt.synchronize_stream(stream) == 507899
    assert "was freed before" in npu.acl.get_recent_err_msg()
    assert npu.rt.synchronize_stream(stream) == 0


def test_pageable_memory_makes_an_asynchronous_copy_synchronous(npu: Driver) -> None:
    stream, data = npu.stream(), np.full(8, 3.0)
    target = npu.device(64)
    npu.ok(npu.rt.memcpy_async(target, 64, data.ctypes.data, 64, 1, stream))
    data[:] = 4.0
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.download(target, data).tolist() == [3.0] * 8


def test_host_to_host_is_refused_on_a_stream_only(npu: Driver) -> None:
    (a, given), (b, taken) = npu.pinned(np.ones(4)), npu.pinned(np.zeros(4))
    assert npu.rt.memcpy_async(b, 32, a, 32, 0, npu.stream()) == 207000
    npu.ok(npu.rt.memcpy(b, 32, a, 32, 0))
    assert np.array_equal(given, taken)


def test_memset_now_and_on_a_stream(npu: Driver) -> None:
    stream, address = npu.stream(), npu.device(64)
    npu.ok(npu.rt.memset(address, 64, 0x101, 64))
    assert npu.download(address, np.zeros(64, np.uint8)).tolist() == [1] * 64
    npu.ok(npu.rt.memset_async(address, 64, 7, 32, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.download(address, np.zeros(64, np.uint8)).tolist() == [7] * 32 + [1] * 32
    assert npu.rt.memset(address, 63, 0, 64) == 107000
    pinned, view = npu.pinned(np.ones(8, np.uint8))
    npu.ok(npu.rt.memset(pinned, 8, 5, 8))
    npu.ok(npu.rt.memset_async(pinned, 8, 6, 4, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    assert view.tolist() == [6] * 4 + [5] * 4


def test_pinned_memory_is_real_and_aligned(npu: Driver) -> None:
    for size in (1, 100, 5 * MIB):
        address, view = npu.pinned(np.ones(size, np.uint8))
        assert address % 64 == 0
        assert view.sum() == size
        npu.ok(npu.rt.free_host(address))


def test_a_large_copy_on_a_stream_leaves_the_interpreter_free(npu: Driver) -> None:
    stream, data = npu.stream(), np.ones(64 * MIB, np.uint8)
    source, _ = npu.pinned(data)
    target = npu.device(data.nbytes)
    npu.ok(npu.rt.memcpy_async(target, data.nbytes, source, data.nbytes, 1, stream))
    assert npu.rt.stream_query(stream) == (1, 0)
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.download(target, data).sum() == data.size


def test_on_the_board_device_memory_is_host_memory() -> None:
    emulator = Emulator(Config(memory=16 * MIB, run_mode=0))
    emulator.acl.init()
    npu = Driver(emulator)
    address = npu.upload(np.array([42], np.int64))
    assert npu.acl.util.ptr_to_numpy(address, (1,), 7)[0] == 42
    emulator.shutdown()


@pytest.fixture
def memory() -> DeviceMemory:
    return DeviceMemory(0, MIB)


def test_freed_neighbours_become_one_range(memory: DeviceMemory) -> None:
    blocks = [memory.allocate(1000) for _ in range(10)]
    for block in blocks[::2] + blocks[1::2]:
        assert memory.release(block.start) is block
    assert memory.free == MIB
    assert memory.allocate(MIB - 32).start == memory.base


def test_the_first_range_that_fits_is_taken(memory: DeviceMemory) -> None:
    blocks = [memory.allocate(1000) for _ in range(4)]
    memory.release(blocks[1].start)
    memory.release(blocks[3].start)
    assert memory.allocate(900).start == blocks[1].start
    assert memory.allocate(2000).start == blocks[3].start


def test_fragments_do_not_add_up(memory: DeviceMemory) -> None:
    blocks = [memory.allocate(MIB // 8 - 32) for _ in range(8)]
    for block in blocks[::2]:
        memory.release(block.start)
    assert memory.free == MIB // 2
    with pytest.raises(Failure, match="out of memory"):
        memory.allocate(MIB // 4)


def test_random_use_never_overlaps_and_comes_out_even(memory: DeviceMemory) -> None:
    generator = np.random.default_rng(1)
    held: dict[int, int] = {}
    for _ in range(3000):
        if held and generator.random() < 0.5:
            start = list(held)[generator.integers(len(held))]
            del held[start]
            assert memory.release(start) is not None
        else:
            try:
                block = memory.allocate(int(generator.integers(1, 20000)))
            except Failure:
                continue
            held[block.start] = block.size
            assert memory.blocks.find(block.start + block.size - 1) is block
    ordered = sorted(held.items())
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(ordered))
    for start in held:
        memory.release(start)
    assert memory.free == MIB
    assert len(memory.blocks) == 0


def test_a_copy_beyond_a_python_object_is_cut_and_told(npu: Driver) -> None:
    target, data = npu.device(64), bytes(range(16))
    npu.ok(npu.rt.memset(target, 64, 9, 64))
    npu.ok(npu.rt.memcpy(target, 64, npu.acl.util.bytes_to_ptr(data), 64, 1))
    assert npu.download(target, np.zeros(64, np.uint8)).tolist() == [*range(16), *[9] * 48]
    (violation,) = npu.emulator.report().violations
    assert violation.rule == "overflow"
    assert "read beyond the end of a Python object of 16" in violation.text


def test_bytes_that_died_after_their_address_was_taken_are_still_there(npu: Driver) -> None:
    target = npu.device(4096)
    for value in range(50):
        address = npu.acl.util.bytes_to_ptr(bytes([value]) * 4096)
        assert bytes(8192)
        npu.ok(npu.rt.memcpy(target, 4096, address, 4096, 1))
        assert (npu.download(target, np.zeros(4096, np.uint8)) == value).all()


def old_driver(cann: str) -> Driver:
    emulator = Emulator(Config(memory=16 * MIB, cann=cann))
    emulator.acl.init()
    return Driver(emulator)


def test_before_cann_8_5_a_pageable_copy_is_undefined_and_must_be_aligned() -> None:
    npu = old_driver("8.0")
    data = np.zeros(256, np.uint8)
    start = -data.ctypes.data % 64
    target = npu.device(64)
    stream = npu.stream()
    assert npu.rt.memcpy_async(target, 64, data.ctypes.data + start + 1, 64, 1, stream) == 107008
    npu.ok(npu.rt.memcpy_async(target, 64, data.ctypes.data + start, 64, 1, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    assert (npu.download(target, np.zeros(64, np.uint8)) == 0xA5).all()
    npu.emulator.shutdown()


def test_host_to_host_on_a_stream_by_version() -> None:
    for cann, now, later in (("6.0", 0, 507899), ("8.0", 207000, 0)):
        npu = old_driver(cann)
        (a, _), (b, _) = npu.pinned(np.ones(8)), npu.pinned(np.zeros(8))
        stream = npu.stream()
        assert npu.rt.memcpy_async(b, 64, a, 64, 0, stream) == now
        assert npu.rt.synchronize_stream(stream) == later
        npu.emulator.shutdown()
