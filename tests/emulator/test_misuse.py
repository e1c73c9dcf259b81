"""Memory used where it must not be: freed, queued, of another or a lost device, by two models at once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator
from aioascend.emulator.memory import FreedPinned, allocate_pinned

from .kit import Driver, doubler


def make(strict: bool) -> Driver:
    emulator = Emulator(Config(devices=2, memory=64 << 20, strict=strict))
    emulator.acl.init()
    return Driver(emulator)


@pytest.fixture
def strict() -> Iterator[Driver]:
    npu = make(True)
    yield npu
    npu.emulator.shutdown()


@pytest.fixture
def lenient() -> Iterator[Driver]:
    npu = make(False)
    yield npu
    npu.emulator.shutdown()


def kinds(npu: Driver) -> list[str]:
    return [violation.rule for violation in npu.emulator.report().violations]


# -- freed pinned memory --------------------------------------------------------------------------------------------

_PROGRAM = """
from aioascend.emulator import Config, Emulator

emulator = Emulator(Config(memory=64 << 20))
acl, rt = emulator.acl, emulator.acl.rt
acl.init()
rt.set_device(0)
stream, device = rt.create_stream()[0], rt.malloc(64, 0)[0]
freed, size = rt.malloc_host({size})[0], {size}
desc = acl.create_tensor_desc(0, [16], 2)
rt.free_host(freed)
print(rt.malloc_host(64)[0] != freed)
for place in (freed, freed + size // 2):
    print(
        rt.memcpy(device, 64, place, 64, 1),
        rt.memcpy(place, 64, device, 64, 2),
        rt.memset(place, 64, 0, 64),
        rt.memset_async(place, 64, 0, 64, stream),
        rt.memcpy_async(device, 64, place, 64, 1, stream),
        rt.memcpy_async(place, 64, device, 64, 2, stream),
        acl.set_tensor_const(desc, place, 64),
        acl.mdl.load_from_mem(place, 64),
        acl.util.ptr_to_bytes(place, 4),
        acl.util.ptr_to_numpy(place, (4,), 2),
        rt.synchronize_stream(stream),
    )
print(rt.free_host(freed))
print(sorted({{violation.rule for violation in emulator.report().violations}}))
emulator.shutdown()
"""


@pytest.mark.parametrize("size", [64, 8 << 20])
def test_freed_pinned_memory_is_refused_wherever_it_is_used(size: int) -> None:
    program = textwrap.dedent(_PROGRAM).format(size=size)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    refused = "107000 107000 107000 107000 107000 107000 107000 (0, 107000) b'' None 0"
    assert done.stdout.splitlines() == ["True", refused, refused, "107000", "['double-free', 'use-after-free']"]
    assert done.returncode == 0


def test_a_view_of_freed_pinned_memory_is_no_segmentation_fault(npu: Driver) -> None:
    address, view = npu.pinned(np.ones(4))
    npu.ok(npu.rt.free_host(address))
    view[0] = 5


def test_the_ranges_of_freed_pinned_memory_are_bounded() -> None:
    freed = FreedPinned(most=3, most_bytes=64 << 10)
    blocks = [allocate_pinned(64) for _ in range(5)]
    for block in blocks:
        freed.keep(block)
    assert [freed.find(block.start + 8) for block in blocks] == [None, None, *blocks[2:]]
    big = allocate_pinned(128 << 10)
    freed.keep(big)
    assert [freed.find(block.start) for block in (*blocks, big)] == [None] * 5 + [big]


def test_reading_beyond_pinned_memory_is_refused(npu: Driver) -> None:
    address = npu.ok(npu.rt.malloc_host(4096))
    assert npu.acl.util.ptr_to_bytes(address, 4097) == b""
    assert kinds(npu) == ["overflow"]
    assert len(npu.acl.util.ptr_to_bytes(address, 4096)) == 4096


# -- memory that queued work needs ----------------------------------------------------------------------------------


def queue_memset(npu: Driver, address: int, stream: int) -> None:
    npu.ok(npu.rt.memset_async(address, 64, 1, 64, stream))


def queue_operator(npu: Driver, address: int, stream: int) -> None:
    described = npu.acl.create_tensor_desc(0, [16], 2)
    buffer = npu.acl.create_data_buffer(address, 64)
    attributes = npu.acl.op.create_attr()
    given = ["Add", [described, described], [buffer, buffer], [described], [buffer], attributes, stream]
    npu.ok(npu.acl.op.execute_v2(*given))


def queue_cast(npu: Driver, address: int, stream: int) -> None:
    described = npu.acl.create_tensor_desc(0, [16], 2)
    buffer = npu.acl.create_data_buffer(address, 64)
    npu.ok(npu.acl.op.cast(described, buffer, described, buffer, 0, stream))


@pytest.mark.parametrize("queue", [queue_memset, queue_operator, queue_cast])
def test_memory_that_is_queued_is_not_freed(
    strict: Driver, lenient: Driver, queue: Callable[[Driver, int, int], None]
) -> None:
    for npu, code, rule in ((strict, 107000, "free-in-use"), (lenient, 0, "use-after-free")):
        stream, address = npu.stream(), npu.device(64)
        release = npu.hold(stream)
        queue(npu, address, stream)
        assert npu.rt.free(address) == code
        release()
        assert (npu.rt.synchronize_stream(stream) == 0) == (npu is strict)
        assert kinds(npu) == [rule]
        assert (npu.rt.free(address) == 0) == (npu is strict)


def test_a_queued_task_that_fails_tells_the_line_that_submitted_it() -> None:
    emulator = Emulator(Config(memory=64 << 20, trace=True))
    emulator.acl.init()
    npu = Driver(emulator)
    for queue in (queue_memset, queue_operator):
        stream, address = npu.stream(), npu.device(64)
        release = npu.hold(stream)
        queue(npu, address, stream)
        npu.ok(npu.rt.free(address))
        release()
        npu.rt.synchronize_stream(stream)
    places = [violation.where for violation in emulator.report().violations]
    emulator.shutdown()
    assert [place.rpartition(" in ")[2] for place in places] == ["queue_memset", "queue_operator"]


# -- models that share memory ---------------------------------------------------------------------------------------


class Shared:
    """Two loads of one model with the same work and weight memory; `apart`: each with work memory of its own."""

    def __init__(self, npu: Driver, path: Path, apart: bool = False) -> None:
        path.write_bytes(doubler())
        work_size, weight_size = npu.ok(npu.mdl.query_size(str(path)))
        self.weight, self.weight_size = npu.device(weight_size), weight_size
        works = [npu.device(work_size) for _ in range(2)]
        works[1] = works[apart]
        load = npu.mdl.load_from_file_with_mem
        self.models = [npu.ok(load(str(path), work, work_size, self.weight, weight_size)) for work in works]
        self.datasets = [npu.dataset((npu.device(24), 24)) for _ in works]


def run_both(npu: Driver, shared: Shared) -> int:
    first, second = npu.stream(), npu.stream()
    release = npu.hold(first)
    one, other = shared.datasets
    npu.ok(npu.mdl.execute_async(shared.models[0], one, one, first))
    code: int = npu.mdl.execute_async(shared.models[1], other, other, second)
    release()
    npu.ok(npu.rt.synchronize_stream(first))
    npu.ok(npu.rt.synchronize_stream(second))
    npu.ok(npu.mdl.execute_async(shared.models[1], other, other, second))
    npu.ok(npu.rt.synchronize_stream(second))
    for model in shared.models:
        npu.ok(npu.mdl.unload(model))
    return code


def test_loads_with_one_work_memory_run_on_one_stream_at_a_time(
    strict: Driver, lenient: Driver, tmp_path: Path
) -> None:
    assert run_both(strict, Shared(strict, tmp_path / "m.onnx")) == 107005
    assert run_both(lenient, Shared(lenient, tmp_path / "m.onnx")) == 0
    assert kinds(strict) == kinds(lenient) == ["work-memory-shared"]


def test_loads_that_share_weights_alone_run_at_once(strict: Driver, tmp_path: Path) -> None:
    assert run_both(strict, Shared(strict, tmp_path / "m.onnx", apart=True)) == 0
    assert kinds(strict) == []


def test_loads_with_one_work_memory_take_turns_on_a_stream(strict: Driver, tmp_path: Path) -> None:
    shared, stream = Shared(strict, tmp_path / "m.onnx"), strict.stream()
    release = strict.hold(stream)
    for model in shared.models * 2:
        strict.ok(strict.mdl.execute_async(model, *2 * shared.datasets[:1], stream))
    release()
    strict.ok(strict.rt.synchronize_stream(stream))
    assert kinds(strict) == []


def test_a_synchronous_run_says_where_it_is(strict: Driver, tmp_path: Path) -> None:
    shared = Shared(strict, tmp_path / "m.onnx")
    strict.ok(strict.rt.memset(shared.weight, shared.weight_size, 0, shared.weight_size))
    assert strict.mdl.execute(shared.models[0], *2 * shared.datasets[:1]) == 507015
    (violation,) = strict.emulator.report().violations
    assert violation.rule == "weights-overwritten"
    assert "test_misuse.py" in violation.where


# -- memory of another device, and of a lost one --------------------------------------------------------------------


def use_elsewhere(npu: Driver) -> list[int]:
    context = npu.context
    other = npu.ok(npu.rt.create_context(1))
    away = npu.device(64)
    npu.ok(npu.rt.set_context(context))
    stream, loaded, dataset = npu.stream(), npu.load(doubler()), npu.dataset((away, 64))
    described, buffer = npu.acl.create_tensor_desc(0, [16], 2), npu.acl.create_data_buffer(away, 64)
    codes = [
        npu.rt.memset(away, 64, 0, 64),
        npu.rt.memset_async(away, 64, 0, 64, stream) or npu.rt.synchronize_stream(stream),
        npu.mdl.execute(loaded, dataset, dataset),
        npu.mdl.execute_async(loaded, dataset, dataset, stream),
        npu.acl.op.cast(described, buffer, described, buffer, 0, stream),
        npu.rt.synchronize_stream(stream),
    ]
    npu.ok(npu.mdl.unload(loaded))
    npu.ok(npu.rt.set_context(other))
    npu.ok(npu.rt.free(away))
    npu.ok(npu.rt.set_context(context))
    return codes


def test_memory_of_another_device(strict: Driver, lenient: Driver) -> None:
    assert use_elsewhere(strict) == [107000] * 5 + [0]
    assert use_elsewhere(lenient) == [0] * 6
    assert set(kinds(strict)) == set(kinds(lenient)) == {"foreign-device"}
    calls = [violation.call for violation in strict.emulator.report().violations]
    assert calls[:4] == ["acl.rt.memset", "acl.rt.memset_async", "acl.mdl.execute", "acl.mdl.execute_async"]


def test_memory_of_a_peer_that_the_device_was_let_at(strict: Driver) -> None:
    strict.ok(strict.rt.device_enable_peer_access(1, 0))
    assert use_elsewhere(strict) == [0] * 6
    assert kinds(strict) == []


def test_a_lost_device_is_not_filled(lenient: Driver) -> None:
    address, pinned = lenient.device(64), lenient.ok(lenient.rt.malloc_host(64))
    stream = lenient.stream()
    lenient.emulator.faults.lose_device(0)
    lost = lenient.rt.memcpy(address, 64, pinned, 64, 1)
    assert lost != 0
    assert lenient.rt.memset(address, 64, 0, 64) == lost
    assert lenient.rt.memset_async(address, 64, 0, 64, stream) == lost
