"""The emulator's C functions do what its pyACL functions do, through real function pointers."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioascend.driver.native import native_of
from aioascend.driver.routes import ROUTES, is_output
from aioascend.emulator import Config, Emulator, Profile
from tests import kit


@pytest.fixture
def machine() -> Iterator[Emulator]:
    emulator = Emulator(Config(devices=2, strict=True))
    yield emulator
    emulator.shutdown()


class C:
    """The C functions of an emulator, called with plain values: results first, the status last, as pyACL gives them."""

    def __init__(self, emulator: Emulator) -> None:
        self._functions = native_of(emulator.acl).functions
        self._routes = {route.c: route for route in ROUTES}

    def __call__(self, name: str, *values: Any) -> Any:
        route, rest = self._routes[name], iter(values)
        cells = [kind() for kind in route.outputs]
        outputs = iter(cells)
        arguments = [ctypes.byref(next(outputs)) if is_output(kind) else next(rest) for kind in route.arguments]
        ret = self._functions[name](*arguments)
        return (*(cell.value or 0 for cell in cells), ret) if cells else ret


@pytest.fixture
def c(machine: Emulator) -> C:
    return C(machine)


def test_every_function_of_the_table_is_there(machine: Emulator) -> None:
    native = native_of(machine.acl)

    assert native.reason == ""
    assert set(native.functions) == {route.c for route in ROUTES}
    assert len({machine.acl.__native__.address(route.c) for route in ROUTES}) == len(ROUTES)
    assert machine.acl.__native__.address("aclrtLaunchKernel") == 0


def test_a_program_may_use_both_routes_on_the_same_handles(machine: Emulator, c: C, tmp_path: Path) -> None:
    acl = machine.acl
    path = tmp_path / "möd.onnx"
    path.write_bytes(kit.add(2))
    assert (c("aclInit", None), acl.init(), c("aclInit", None)) == (0, 100002, 100002)
    assert c("aclrtSetDevice", 0) == 0
    context, ret = c("aclrtCreateContext", 0)
    assert (ret, acl.rt.get_context()) == (0, (context, 0))
    assert (acl.rt.set_context(context), c("aclrtSetCurrentContext", context)) == (0, 0)
    stream, _ = acl.rt.create_stream()

    model, ret = c("aclmdlLoadFromFile", str(path).encode())
    assert ret == 0
    work, weight, ret = c("aclmdlQuerySize", str(path).encode())
    assert (work, weight, ret) == acl.mdl.query_size(str(path))
    ins, ret = c("aclrtMalloc", 64, 0)
    outs, _ = acl.rt.malloc(64, 0)
    pinned, ret2 = c("aclrtMallocHost", 64)
    assert ret == ret2 == 0
    view = np.ctypeslib.as_array((ctypes.c_float * 4).from_address(pinned))
    view[:] = [1, 2, 3, 4]
    datasets = []
    for address in (ins, outs):
        dataset = acl.mdl.create_dataset()
        acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, 16))
        datasets.append(dataset)
    assert c("aclrtMemcpy", ins, 64, pinned, 16, 1) == 0
    assert c("aclmdlExecuteAsync", model, *datasets, stream) == 0
    assert c("aclrtMemcpyAsync", pinned, 64, outs, 16, 2, stream) == 0
    assert c("aclrtSynchronizeStream", stream) == 0
    assert (c("aclrtSynchronizeStreamWithTimeout", stream, 100), c("aclrtSynchronizeDevice")) == (0, 0)
    assert view.tolist() == [3, 4, 5, 6]

    assert c("aclrtSubscribeReport", threading.get_ident(), stream) == 0
    assert c("aclrtUnSubscribeReport", threading.get_ident(), stream) == 0
    assert c("aclmdlUnload", model) == 0
    for dataset in datasets:
        acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, 0))
        acl.mdl.destroy_dataset(dataset)
    assert (acl.rt.free(ins), c("aclrtFree", outs), c("aclrtFreeHost", pinned)) == (0, 0, 0)
    assert (c("aclrtDestroyStream", stream), c("aclrtDestroyContext", context)) == (0, 0)
    assert (c("aclrtResetDevice", 0), c("aclFinalize"), acl.finalize()) == (0, 0, 100037)
    assert not machine.report()


def test_a_model_is_loaded_into_memory_of_the_program(machine: Emulator, c: C, tmp_path: Path) -> None:
    acl = machine.acl
    acl.init()
    acl.rt.set_device(0)
    data = kit.big(1)
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    address = np.frombuffer(data, np.uint8).ctypes.data
    work, weight, _ = acl.mdl.query_size(str(path))
    blocks = [acl.rt.malloc(max(size, 32), 0)[0] for size in (work, weight)]

    from_file, ret = c("aclmdlLoadFromFileWithMem", str(path).encode(), blocks[0], work, blocks[1], weight)
    assert ret == 0
    assert acl.mdl.unload(from_file) == 0
    from_memory, ret = c("aclmdlLoadFromMemWithMem", address, len(data), None, 0, None, 0)
    assert ret == 0
    again, ret = c("aclmdlLoadFromMem", address, len(data))
    assert ret == 0
    assert [c("aclmdlUnload", one) for one in (from_memory, again)] == [0, 0]
    assert [acl.rt.free(block) for block in blocks] == [0, 0]


def test_codes_and_messages_are_those_of_pyacl(machine: Emulator, c: C) -> None:
    acl = machine.acl
    acl.init()
    text = native_of(acl).functions["aclGetRecentErrMsg"]
    assert text() is None
    assert acl.rt.set_device(9) == c("aclrtSetDevice", 9)
    assert text().decode().startswith("E107001: ")
    assert text() is None
    assert c("aclrtMalloc", 64, 0) == (0, 107002)
    assert acl.get_recent_err_msg().startswith("E107002: ")
    acl.rt.set_device(0)
    assert c("aclrtMalloc", 0, 0) == acl.rt.malloc(0, 0) == (0, 100000)
    assert c("aclrtFree", None) == acl.rt.free(0) == 100000
    assert c("aclmdlLoadFromFile", None) == (0, 100000)
    assert c("aclmdlLoadFromFile", b"/nowhere/\xff.om")[1] == acl.mdl.load_from_file("/nowhere/x.om")[1]
    acl.rt.reset_device(0)


def test_a_null_out_pointer_is_refused_and_nothing_is_made(machine: Emulator) -> None:
    acl = machine.acl
    acl.init()
    acl.rt.set_device(0)
    assert native_of(acl).functions["aclrtMalloc"](None, 64, 0) == 100000
    assert {leak.kind for leak in machine.report().leaks} == {"init", "device"}


def test_a_failed_call_leaves_its_cell_alone(machine: Emulator) -> None:
    cell = ctypes.c_void_p(5)
    assert native_of(machine.acl).functions["aclrtMalloc"](ctypes.byref(cell), 64, 0) != 0
    assert cell.value == 5


def test_a_fault_strikes_both_routes_and_counts_them_together(machine: Emulator, c: C) -> None:
    acl = machine.acl
    acl.init()
    acl.rt.set_device(0)
    rule = machine.faults.fail("rt.malloc", 207001, nth=2, times=2)

    codes = [c("aclrtMalloc", 64, 0)[1], acl.rt.malloc(64, 0)[1], c("aclrtMalloc", 64, 0)[1], acl.rt.malloc(64, 0)[1]]

    assert codes == [0, 207001, 207001, 0]
    assert (rule.seen, rule.hits) == (4, 2)


def test_what_hardware_forbids_is_noted_at_the_line_of_the_program(machine: Emulator, c: C) -> None:
    c("aclrtSetDevice", 0)
    (violation,) = machine.report().violations

    assert (violation.rule, violation.call) == ("before-init", "acl.rt.set_device")
    assert "test_native.py" in violation.where


@pytest.mark.logs_errors
def test_an_exception_never_comes_out_of_a_c_function(
    machine: Emulator, c: C, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(machine.acl.rt, "set_device", broken)
    monkeypatch.setattr(machine.acl, "get_recent_err_msg", broken)
    with caplog.at_level(logging.ERROR, "aioascend.emulator"):
        assert c("aclrtSetDevice", 0) == 500000
        assert native_of(machine.acl).functions["aclGetRecentErrMsg"]() is None
    assert len(caplog.records) == 2


def _sleep_in_short_pieces(seconds: float) -> None:
    """What is not a signal of the system comes between two bytecodes, and ends no sleep."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.001)


def test_ctrl_c_in_a_c_function_comes_when_it_has_returned(
    machine: Emulator, c: C, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine.acl.rt, "set_device", interrupted)
    assert c("aclrtSetDevice", 0) == 500000
    with pytest.raises(KeyboardInterrupt):
        _sleep_in_short_pieces(10)


def test_the_pointers_keep_what_is_behind_them() -> None:
    emulator = Emulator(Config())
    assert emulator.acl.init() == 0
    function = native_of(emulator.acl).functions["aclrtSetDevice"]
    del emulator

    assert function(99) == 107001


@pytest.mark.slow
@pytest.mark.parametrize("route, stands_still", [("c", False), ("pyacl", True)])
def test_the_time_of_a_profile_is_spent_without_the_gil_in_c(route: str, stands_still: bool) -> None:
    machine = Emulator(Config(profile=Profile(malloc=0.5, hold_gil=True)))
    machine.acl.init()
    machine.acl.rt.set_device(0)
    gaps, stop, ticking = [0.0], threading.Event(), threading.Event()

    def tick() -> None:
        last = time.perf_counter()
        while not stop.wait(0.001):
            now = time.perf_counter()
            gaps.append(now - last)
            last = now
            ticking.set()

    thread = threading.Thread(target=tick)
    thread.start()
    ticking.wait()
    try:
        _, ret = C(machine)("aclrtMalloc", 64, 0) if route == "c" else machine.acl.rt.malloc(64, 0)
    finally:
        stop.set()
        thread.join()
        machine.shutdown()

    assert ret == 0
    assert (max(gaps) > 0.4) is stands_still
