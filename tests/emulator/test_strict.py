"""What hardware forbids is reported with the program's line; in strict mode it is an error."""

from __future__ import annotations

import ctypes
import logging
import mmap
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator

from .kit import Driver, doubler


def _npu(strict: bool, soc_name: str = "Ascend910B4") -> Driver:
    emulator = Emulator(Config(memory=64 << 20, strict=strict, soc_name=soc_name))
    emulator.acl.init()
    return Driver(emulator)


@pytest.fixture
def strict() -> Iterator[Driver]:
    npu = _npu(True)
    yield npu
    npu.emulator.shutdown()


@pytest.fixture
def lenient() -> Iterator[Driver]:
    npu = _npu(False)
    yield npu
    npu.emulator.shutdown()


def kinds(npu: Driver) -> list[str]:
    return [violation.rule for violation in npu.emulator.report().violations]


def two_streams(npu: Driver) -> list[int]:
    loaded, first, second = npu.load(doubler()), npu.stream(), npu.stream()
    dataset = npu.dataset((npu.device(24), 24))
    release = npu.hold(first)
    codes = [npu.mdl.execute_async(loaded, dataset, dataset, stream) for stream in (first, second)]
    release()
    npu.rt.synchronize_stream(first)
    codes.append(npu.mdl.execute_async(loaded, dataset, dataset, second))
    npu.ok(npu.rt.synchronize_stream(second))
    npu.ok(npu.mdl.unload(loaded))
    return codes


def test_one_model_on_two_streams_at_once(strict: Driver, lenient: Driver) -> None:
    assert two_streams(strict) == [0, 107005, 0]
    assert two_streams(lenient) == [0, 0, 0]
    assert kinds(strict) == kinds(lenient) == ["model-on-two-streams"]
    violation = strict.emulator.report().violations[0]
    assert violation.call == "acl.mdl.execute_async"
    assert "test_strict.py" in violation.where


def test_a_synchronous_run_while_another_is_queued(strict: Driver, lenient: Driver) -> None:
    for npu, code in ((strict, 107005), (lenient, 0)):
        loaded, stream, dataset = npu.load(doubler()), npu.stream(), npu.dataset((npu.device(24), 24))
        npu.ok(npu.mdl.execute(loaded, dataset, dataset))
        release = npu.hold(stream)
        npu.ok(npu.mdl.execute_async(loaded, dataset, dataset, stream))
        assert npu.mdl.execute(loaded, dataset, dataset) == code
        release()
        npu.ok(npu.rt.synchronize_stream(stream))
        npu.ok(npu.mdl.execute(loaded, dataset, dataset))
        assert kinds(npu) == ["model-on-two-streams"]


def test_what_a_queued_run_was_given_must_stay_as_it_is(strict: Driver) -> None:
    npu, stream = strict, strict.stream()
    address = npu.device(24)
    loaded, dataset = npu.load(doubler()), npu.dataset((address, 24))
    buffer = npu.mdl.get_dataset_buffer(dataset, 0)
    changes = (
        lambda: npu.acl.update_data_buffer(buffer, address, 24),
        lambda: npu.mdl.destroy_dataset(dataset),
        lambda: npu.acl.destroy_data_buffer(buffer),
    )
    release = npu.hold(stream)
    npu.ok(npu.mdl.execute_async(loaded, dataset, dataset, stream))
    assert [change() for change in changes] == [100000] * 3
    release()
    npu.ok(npu.rt.synchronize_stream(stream))
    assert kinds(npu) == ["dataset-in-use"] * 3
    assert [change() for change in changes] == [0] * 3


@pytest.fixture
def lent(strict: Driver, tmp_path: Path) -> tuple[list[int], int, int, int]:
    """Two loads of a model that share their weights; the addresses of work and weight memory, and the latter's size."""
    path = tmp_path / "m.onnx"
    path.write_bytes(doubler())
    work_size, weight_size = strict.ok(strict.mdl.query_size(str(path)))
    work, weight = strict.device(work_size), strict.device(weight_size)
    load = strict.mdl.load_from_file_with_mem
    models = [strict.ok(load(str(path), place, work_size, weight, weight_size)) for place in (work, 0)]
    return models, work, weight, weight_size


def test_memory_lent_to_a_loaded_model_must_not_be_freed(strict: Driver, lent: tuple[list[int], int, int, int]) -> None:
    models, work, weight, _ = lent
    assert strict.rt.free(work) == 107000
    assert strict.rt.free(weight) == 107000
    texts = [violation.text for violation in strict.emulator.report().violations]
    assert "1 loaded model needs it" in texts[0]
    assert "2 loaded models need it" in texts[1]
    assert set(kinds(strict)) == {"free-in-use"}
    for model in models:
        strict.ok(strict.mdl.unload(model))
    assert [strict.rt.free(work), strict.rt.free(weight)] == [0, 0]


def test_weights_in_memory_that_the_program_lent_must_not_be_overwritten(
    strict: Driver, lent: tuple[list[int], int, int, int]
) -> None:
    models, work, weight, size = lent
    x = np.ones((2, 3), np.float32)
    strict.ok(strict.rt.memset(work, 100, 0, 100))
    for model in models:
        assert strict.run(model, [x], [x])[0].sum() == 12
    assert strict.download(work, np.zeros(4, np.uint8)).any()
    strict.ok(strict.rt.memset(weight + size - 8, 8, 0, 8))
    given, taken, _ = strict.bind([x], [x])
    assert strict.mdl.execute(models[1], given, taken) == 507015
    assert kinds(strict) == ["weights-overwritten"]


def test_a_model_is_unloaded_in_the_context_that_it_was_loaded_in(strict: Driver, lenient: Driver) -> None:
    for npu, code in ((strict, 107004), (lenient, 0)):
        loaded = npu.load(doubler())
        npu.ok(npu.rt.create_context(0))
        assert npu.mdl.unload(loaded) == code
        assert kinds(npu) == ["foreign-context"]


@pytest.mark.parametrize(
    "soc_name, refused",
    [
        ("Ascend310P3", {"stream_abort", "host_register", "set_op_wait_timeout"}),
        ("Ascend310", {"stream_abort", "host_register", "synchronize_event_with_timeout", "launch_callback"}),
        ("Ascend910B4", set()),
    ],
)
def test_what_a_chip_has_not(soc_name: str, refused: set[str]) -> None:
    npu = _npu(True, soc_name)
    stream, event = npu.stream(), npu.ok(npu.rt.create_event())
    npu.ok(npu.rt.subscribe_report(threading.get_ident(), stream))
    page = npu.ok(npu.rt.malloc_host(4096))
    npu.ok(npu.rt.free_host(page))
    with mmap.mmap(-1, 4096) as memory:
        address = ctypes.addressof(buffer := ctypes.c_char.from_buffer(memory))
        codes = {
            "stream_abort": npu.rt.stream_abort(stream),
            "host_register": npu.rt.host_register(address, 4096, 0)[1],
            "set_op_wait_timeout": npu.rt.set_op_wait_timeout(1),
            "synchronize_event_with_timeout": npu.rt.synchronize_event_with_timeout(event, 1),
            "launch_callback": npu.rt.launch_callback(id, 0, 0, stream),
        }
        del buffer
    npu.emulator.shutdown()
    assert {name for name, code in codes.items() if code == 207000} == refused
    assert {name for name, code in codes.items() if code == 0} == codes.keys() - refused
    assert set(kinds(npu)) == ({"unsupported-on-chip"} if refused else set())


def freed_in_use(npu: Driver) -> list[int]:
    stream, (source, _) = npu.stream(), npu.pinned(np.ones(4))
    target = npu.device(32)
    release = npu.hold(stream)
    npu.ok(npu.rt.memcpy_async(target, 32, source, 32, 1, stream))
    codes = [npu.rt.free(target), npu.rt.free_host(source)]
    release()
    codes.append(npu.rt.synchronize_stream(stream))
    return codes


def test_memory_freed_while_queued_work_needs_it(strict: Driver, lenient: Driver) -> None:
    assert freed_in_use(strict) == [107000, 107000, 0]
    assert set(kinds(strict)) == {"free-in-use"}
    assert freed_in_use(lenient) == [0, 0, 507899]


def test_memory_may_be_freed_when_the_work_is_done_or_dropped(strict: Driver) -> None:
    stream = strict.stream()
    a, b = strict.upload(np.ones(4)), strict.upload(np.ones(4))
    strict.ok(strict.rt.memcpy_async(b, 32, a, 32, 3, stream))
    strict.ok(strict.rt.synchronize_stream(stream))
    strict.hold(stream)
    strict.ok(strict.rt.memcpy_async(b, 32, a, 32, 3, stream))
    strict.ok(strict.rt.stream_abort(stream))
    strict.ok(strict.rt.free(a))
    strict.ok(strict.rt.free(b))
    assert kinds(strict) == []


def test_pageable_memory_in_an_asynchronous_copy(strict: Driver, lenient: Driver) -> None:
    data = np.ones(4)
    for npu, code in ((strict, 107016), (lenient, 0)):
        target = npu.device(32)
        assert npu.rt.memcpy_async(target, 32, data.ctypes.data, 32, 1, npu.stream()) == code
        assert kinds(npu) == ["pageable-async-copy"]


def test_acl_calls_in_a_callback(strict: Driver, lenient: Driver) -> None:
    for npu, code in ((strict, 207000), (lenient, 0)):
        stream, seen = npu.stream(), []
        npu.ok(npu.rt.subscribe_report(threading.get_ident(), stream))
        npu.ok(npu.rt.launch_callback(lambda _, npu=npu, seen=seen: seen.append(npu.rt.malloc(64, 0)[1]), 0, 0, stream))
        npu.ok(npu.rt.process_report(1000))
        assert seen == [code]
        assert kinds(npu) == ["call-in-callback"]
        assert npu.rt.malloc(64, 0)[1] == 0


def test_teardown_in_the_wrong_order(lenient: Driver) -> None:
    stream = lenient.stream()
    lenient.ok(lenient.rt.subscribe_report(threading.get_ident(), stream))
    lenient.ok(lenient.rt.destroy_stream(stream))
    lenient.stream()
    lenient.load(doubler())
    lenient.ok(lenient.rt.set_device(0))
    lenient.ok(lenient.rt.reset_device(0))
    lenient.ok(lenient.rt.destroy_context(lenient.context))
    assert kinds(lenient) == ["teardown-order"] * 3
    texts = [violation.text for violation in lenient.emulator.report().violations]
    assert "before unsubscribing" in texts[0]
    assert "reset before its contexts" in texts[1]
    assert texts[2] == f"context {lenient.context:#x} was closed with 1 model, 1 stream left in it"
    lenient.ok(lenient.acl.finalize())
    swept = [leak.kind for leak in lenient.emulator.report().leaks]
    assert swept == ["stream", "model"]


def test_leaks_are_named_with_the_place_where_they_were_made(strict: Driver) -> None:
    strict.stream()
    strict.ok(strict.rt.create_event())
    strict.device(1000)
    strict.pinned(np.ones(4))
    strict.load(doubler())
    strict.dataset((0, 0))
    strict.mdl.create_desc()
    leaks = strict.emulator.report().leaks
    assert [leak.kind for leak in leaks] == [
        "init",
        "context",
        "stream",
        "event",
        "device memory",
        "pinned memory",
        "model",
        "dataset",
        "data buffer",
        "model description",
    ]
    assert all("kit.py" in leak.where or "test_strict.py" in leak.where for leak in leaks)
    strict.ok(strict.acl.finalize())
    assert strict.rt.destroy_context(strict.context) == 100001
    report = strict.emulator.report()
    assert report.leaks == leaks[1:]
    assert "device memory" in str(report)
    assert "of 1000 bytes on device 0" in str(report)


def test_texts_of_leaks() -> None:
    emulator = Emulator(Config(memory=64 << 20, strict=True))
    emulator.acl.init()
    emulator.acl.rt.set_device(0)
    Driver(emulator).device(1)
    lines = str(emulator.report()).splitlines()
    emulator.shutdown()
    assert lines[0] == "4 not released:"
    assert lines[1].startswith("  acl.init without acl.finalize, called at ")
    assert lines[2].startswith("  device 0, set at ")
    assert " of 1 byte on device 0, made at " in lines[4]


def test_a_tidy_program_has_no_leaks_and_no_findings(strict: Driver) -> None:
    npu = strict
    loaded, stream = npu.load(doubler()), npu.stream()
    source, _ = npu.pinned(np.ones((2, 3), np.float32))
    din, dout = npu.device(24), npu.device(24)
    inputs, outputs = npu.dataset((din, 24)), npu.dataset((dout, 24))
    npu.ok(npu.rt.memcpy_async(din, 24, source, 24, 1, stream))
    npu.ok(npu.mdl.execute_async(loaded, inputs, outputs, stream))
    npu.ok(npu.rt.memcpy_async(source, 24, dout, 24, 2, stream))
    npu.ok(npu.rt.synchronize_stream(stream))
    npu.ok(npu.rt.destroy_stream(stream))
    for dataset in (inputs, outputs):
        npu.ok(npu.acl.destroy_data_buffer(npu.mdl.get_dataset_buffer(dataset, 0)))
        npu.ok(npu.mdl.destroy_dataset(dataset))
    npu.ok(npu.rt.free(din))
    npu.ok(npu.rt.free(dout))
    npu.ok(npu.rt.free_host(source))
    npu.ok(npu.mdl.unload(loaded))
    npu.ok(npu.rt.destroy_context(npu.context))
    npu.ok(npu.acl.finalize())
    report = npu.emulator.report()
    assert not report
    assert str(report) == ""


def test_a_thread_without_a_context(strict: Driver, lenient: Driver) -> None:
    for npu in (strict, lenient):
        codes: list[object] = []

        def run(npu: Driver = npu, codes: list[object] = codes) -> None:
            codes.extend((npu.rt.get_context(), npu.rt.get_device(), npu.rt.create_stream()))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert codes == [(0, 107002)] * 3
        (violation,) = npu.emulator.report().violations
        assert (violation.rule, violation.call) == ("no-context", "acl.rt.create_stream")


def test_a_model_unloaded_while_a_run_is_queued(strict: Driver, lenient: Driver) -> None:
    for npu in (strict, lenient):
        loaded, stream, dataset = npu.load(doubler()), npu.stream(), npu.dataset((npu.device(24), 24))
        release = npu.hold(stream)
        npu.ok(npu.mdl.execute_async(loaded, dataset, dataset, stream))
        assert npu.mdl.unload(loaded) == 545009
        (violation,) = npu.emulator.report().violations
        assert violation.rule == "unload-in-use"
        assert "1 run queued" in violation.text
        release()
        npu.ok(npu.rt.synchronize_stream(stream))
        npu.ok(npu.mdl.unload(loaded))


@pytest.mark.parametrize("mode", [True, False], ids=["strict", "lenient"])
def test_calls_before_init_and_after_finalize(mode: bool, caplog: pytest.LogCaptureFixture) -> None:
    emulator = Emulator(Config(memory=64 << 20, strict=mode))
    acl, rt = emulator.acl, emulator.acl.rt
    acl.app_log(1, "text"), acl.get_soc_name(), acl.data_type_size(0), acl.util.bytes_to_ptr(b"x")
    assert rt.get_device_count() == (1, 0)
    assert not emulator.report()
    with caplog.at_level(logging.WARNING, "aioascend.emulator"):
        assert rt.set_device(0) == 100001
        assert rt.create_stream() == (0, 100001 if mode else 107002)
        assert [one.rule for one in emulator.report().violations] == ["before-init"] * 2
        acl.init()
        stream = Driver(emulator).stream()
        acl.finalize()
        assert rt.synchronize_stream(stream) == rt.destroy_stream(stream) == (100001 if mode else 0)
        assert rt.malloc_host(8) == (0, 100001)
        assert acl.finalize() == 100037
    rules = [one.rule for one in emulator.report().violations]
    assert rules == ["before-init"] * 2 + ["after-finalize"] * 2
    assert len(caplog.records) == 2
    acl.init()
    assert (rt.destroy_stream(stream), rt.malloc_host(8)[1]) == ((0 if mode else 107017), 0)
    emulator.shutdown()


def test_a_finding_is_logged_once_per_line(lenient: Driver, caplog: pytest.LogCaptureFixture) -> None:
    data, target = np.ones(4), lenient.device(32)
    with caplog.at_level(logging.WARNING, logger="aioascend.emulator"):
        for _ in range(3):
            lenient.ok(lenient.rt.memcpy_async(target, 32, data.ctypes.data, 32, 1, 0))
    assert len(caplog.records) == 1
    assert "pageable" in caplog.text
    assert "test_strict.py" in caplog.text
    (violation,) = lenient.emulator.report().violations
    assert violation.times == 3


def test_misused_addresses_and_handles_are_told_apart(lenient: Driver) -> None:
    npu, stream = lenient, lenient.stream()
    address, (host, _) = npu.device(64), npu.pinned(np.ones(8))
    npu.rt.memcpy(address, 10, host, 20, 1)
    npu.rt.memcpy(address, 2000, host, 200, 1)
    npu.ok(npu.rt.free(address))
    npu.rt.free(address)
    npu.rt.memcpy(address, 32, host, 32, 1)
    npu.rt.free(address + (1 << 20))
    npu.rt.launch_callback(id, 0, 0, stream)
    npu.ok(npu.rt.destroy_stream(stream))
    npu.rt.synchronize_stream(stream)
    other = npu.stream()
    npu.ok(npu.rt.create_context(0))
    npu.rt.synchronize_stream(other)
    assert kinds(npu) == [
        "overflow",
        "overflow",
        "double-free",
        "use-after-free",
        "wild-address",
        "unsubscribed-stream",
        "stale-handle",
        "foreign-stream",
    ]


def test_memory_freed_before_queued_work_ran_is_told_with_the_line_that_queued_it() -> None:
    emulator = Emulator(Config(memory=64 << 20, trace=True))
    emulator.acl.init()
    npu = Driver(emulator)
    assert freed_in_use(npu) == [0, 0, 507899]
    (violation,) = emulator.report().violations
    assert violation.rule == "use-after-free"
    assert violation.where.endswith(" in freed_in_use")
    emulator.shutdown()


def test_strict_mode_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_EMULATOR_STRICT", "1")
    assert Config.from_env().strict
    monkeypatch.setenv("AIOASCEND_EMULATOR_STRICT", "0")
    assert not Config.from_env().strict
