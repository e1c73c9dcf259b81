"""Calls through the C route, against a library compiled from our header: what is sent arrives, the GIL is free."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aioascend
from aioascend.driver import Backend, Driver, choice
from aioascend.driver.native import native_of
from aioascend.driver.routes import ROUTES, Route, is_output

from .c_library import CLibrary, compile_library

U32, U64 = (1 << 32) - 1, (1 << 64) - 1
POINTER = 0xFEDC_BA98_7654_3210


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CLibrary:
    return CLibrary(compile_library(tmp_path_factory.mktemp("cann") / "libascendcl.so"))


@pytest.fixture
def library(compiled: CLibrary, monkeypatch: pytest.MonkeyPatch) -> Iterator[CLibrary]:
    monkeypatch.delenv("AIOASCEND_DRIVER", raising=False)
    monkeypatch.setattr(choice, "_told", set())
    compiled.answer()
    compiled.message(None)
    yield compiled
    compiled.answer()
    compiled.message(None)


# -- every function of the table --------------------------------------------------------------------------------------

EXTREMES = [0, 1, -1, 1 << 31, (1 << 31) - 1, 1 << 32, U32, 1 << 63, (1 << 63) - 1, U64, -(1 << 63), POINTER]
ANY = st.integers(-(1 << 63), U64) | st.sampled_from(EXTREMES)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values for one argument: all that its C type can hold, and for unsigned ones what has to be masked."""
    if kind is ctypes.c_char_p:
        return st.none() | st.binary(max_size=300).filter(lambda text: b"\0" not in text)
    if kind is ctypes.c_void_p:
        return ANY | st.none()
    if kind is ctypes.c_int:
        return st.integers(-(1 << 31), (1 << 31) - 1) | st.sampled_from([-(1 << 31), (1 << 31) - 1, 0, -1])
    return ANY


def arrives_as(kind: Any, value: Any) -> int:
    if kind is ctypes.c_uint32:
        return int(value) & U32
    return int(value or 0) & U64


@pytest.mark.parametrize("route", [route for route in ROUTES if route.slow], ids=lambda route: route.c)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_argument_and_result_arrives_as_sent(library: CLibrary, route: Route, data: st.DataObject) -> None:
    kinds = [kind for kind in route.arguments if not is_output(kind)]
    sent = [data.draw(values_of(kind)) for kind in kinds]
    code = data.draw(st.integers(-(1 << 31), (1 << 31) - 1))
    results = [data.draw(st.integers(0, U32 if kind is ctypes.c_uint32 else U64)) for kind in route.outputs]
    library.answer(code, tuple(results))
    cells = [kind() for kind in route.outputs]
    rest, outputs = iter(sent), iter(cells)
    before = library.calls

    function = native_of(module_of(library)).functions[route.c]
    ret = function(*(ctypes.byref(next(outputs)) if is_output(kind) else next(rest) for kind in route.arguments))

    assert library.called == route.c
    assert library.calls == before + 1
    assert ret == code
    assert [cell.value or 0 for cell in cells] == results
    texts = [value for kind, value in zip(kinds, sent, strict=True) if kind is ctypes.c_char_p]
    assert [library.text] == (texts or [None])
    assert library.numbers == [
        arrives_as(kind, value) for kind, value in zip(kinds, sent, strict=True) if kind is not ctypes.c_char_p
    ]


def module_of(library: CLibrary) -> ModuleType:
    acl = ModuleType("acl")
    acl.__native__ = library  # type: ignore[attr-defined]
    return acl


@pytest.mark.parametrize("value", [3.0, "3", None, object()])
def test_what_pyacl_refuses_as_a_size_the_c_route_refuses_too(library: CLibrary, value: Any) -> None:
    before = library.calls
    with pytest.raises((TypeError, ctypes.ArgumentError)):
        library.driver().malloc(value)
    assert library.calls == before


# -- the driver's calls -----------------------------------------------------------------------------------------------

DATA = b"IMOD" + bytes(60)
HERE = np.frombuffer(DATA, np.uint8).ctypes.data
WAYS: list[tuple[str, Callable[[Driver], Any], list[int], bytes | None, tuple[int, ...], Any]] = [
    ("aclInit", lambda d: d.init(), [], None, (), True),
    ("aclrtSetDevice", lambda d: d.set_device(3), [3], None, (), None),
    ("aclrtResetDevice", lambda d: d.reset_device(3), [3], None, (), None),
    ("aclrtCreateContext", lambda d: d.create_context(1), [1], None, (POINTER,), POINTER),
    ("aclrtDestroyContext", lambda d: d.destroy_context(POINTER), [POINTER], None, (), None),
    ("aclrtSetCurrentContext", lambda d: d.set_context(POINTER), [POINTER], None, (), None),
    ("aclrtMalloc", lambda d: d.malloc(1 << 33), [1 << 33, 0], None, (POINTER,), POINTER),
    ("aclrtMalloc", lambda d: d.malloc(64, 2), [64, 2], None, (POINTER,), POINTER),
    ("aclrtMallocHost", lambda d: d.malloc_host(1 << 33), [1 << 33], None, (POINTER,), POINTER),
    ("aclrtFree", lambda d: d.free(POINTER), [POINTER], None, (), None),
    ("aclrtFreeHost", lambda d: d.free_host(POINTER), [POINTER], None, (), None),
    ("aclrtMemcpyAsync", lambda d: d.memcpy_to_device(1, 2, 3, 4, 5), [1, 2, 3, 4, 1, 5], None, (), None),
    ("aclrtMemcpyAsync", lambda d: d.memcpy_to_host(1, 2, 3, 4, 5), [1, 2, 3, 4, 2, 5], None, (), None),
    ("aclrtMemcpy", lambda d: d.read_memory(1, 2, 3), [1, 3, 2, 3, 2], None, (), None),
    ("aclrtDestroyStream", lambda d: d.destroy_stream(POINTER), [POINTER], None, (), None),
    ("aclrtSynchronizeStream", lambda d: d.synchronize_stream(7), [7], None, (), True),
    ("aclrtSynchronizeStreamWithTimeout", lambda d: d.synchronize_stream(7, 250), [7, 250], None, (), True),
    ("aclrtSubscribeReport", lambda d: d.subscribe_report(POINTER, 7), [POINTER, 7], None, (), None),
    ("aclrtUnSubscribeReport", lambda d: d.unsubscribe_report(POINTER, 7), [POINTER, 7], None, (), None),
    ("aclmdlLoadFromFile", lambda d: d.load_from_file("/m/ö.om"), [], "/m/ö.om".encode(), (U32,), U32),
    ("aclmdlLoadFromFile", lambda d: d.load_from_file("/m/\udcff"), [], b"/m/\xff", (9,), 9),
    ("aclmdlLoadFromMem", lambda d: d.load_from_bytes(DATA), [HERE, 64], None, (9,), 9),
    ("aclmdlLoadFromMem", lambda d: d.load_from_bytes(memoryview(DATA)[4:]), [HERE + 4, 60], None, (9,), 9),
    ("aclmdlExecuteAsync", lambda d: d.execute_async(U32, 1, 2, 3), [U32, 1, 2, 3], None, (), None),
    ("aclmdlUnload", lambda d: d.unload(U32), [U32], None, (), None),
]  # fmt: skip


@pytest.mark.parametrize("function, call, numbers, text, results, value", WAYS, ids=[way[0] for way in WAYS])
def test_a_call_of_the_driver_reaches_the_c_function(
    library: CLibrary,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    call: Callable[[Driver], Any],
    numbers: list[int],
    text: bytes | None,
    results: tuple[int, ...],
    value: Any,
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", "c")
    library.answer(0, results)
    driver = library.driver()
    before = library.calls

    assert call(driver) == value

    assert (library.called, library.numbers, library.text) == (function, numbers, text)
    assert library.calls == before + 1


@pytest.mark.parametrize("function, call", [way[:2] for way in WAYS], ids=[way[0] for way in WAYS])
@pytest.mark.parametrize("code", [107000, 207001, 507010, 507015, -1, 2_000_000_000])
def test_a_code_of_a_c_function_becomes_an_exception_with_its_message(
    library: CLibrary, monkeypatch: pytest.MonkeyPatch, function: str, call: Callable[[Driver], Any], code: int
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", "c")
    driver = library.driver()
    library.answer(code)
    library.message("E10001: größer \udcff".encode("utf-8", "surrogateescape"))

    with pytest.raises(aioascend.AclError) as caught:
        call(driver)

    assert type(caught.value) is type(driver.error_with(code, "x", ""))
    assert caught.value.code == code
    assert caught.value.call.startswith(function)
    assert caught.value.detail == "E10001: größer \ufffd"


def test_a_code_without_a_message_is_told_too(library: CLibrary) -> None:
    library.answer(507899)
    with pytest.raises(aioascend.DeviceLost, match="aclrtSetDevice") as caught:
        library.driver().set_device(0)
    assert caught.value.detail == ""


def test_init_that_others_have_done_and_a_wait_that_times_out_are_no_errors(
    library: CLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", "c")
    driver = library.driver()
    library.answer(100002)
    assert driver.init() is False
    library.answer(507046)
    assert driver.synchronize_stream(7, 5) is False


def test_a_path_with_a_null_character_never_reaches_c(library: CLibrary) -> None:
    before = library.calls
    with pytest.raises(aioascend.InvalidInput, match="null character"):
        library.driver().load_from_file("/models/a\0b.om")
    assert library.calls == before


# -- the GIL ----------------------------------------------------------------------------------------------------------


def largest_gap_during(call: Callable[[], object]) -> float:
    """The largest time between two turns of a thread that turns every millisecond, while `call` runs on this one."""
    gaps, stop = [0.0], threading.Event()
    ticking = threading.Event()

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
        call()
    finally:
        stop.set()
        thread.join()
    return max(gaps)


SLEEP = 0.4


@pytest.mark.parametrize("function, call", [way[:2] for way in WAYS], ids=[way[0] for way in WAYS])
def test_the_gil_is_free_while_a_c_function_runs(
    library: CLibrary, monkeypatch: pytest.MonkeyPatch, function: str, call: Callable[[Driver], Any]
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", "c")
    driver = library.driver()
    library.answer(0, (1,), seconds=SLEEP)
    started = time.perf_counter()

    gap = largest_gap_during(lambda: call(driver))

    assert time.perf_counter() - started >= SLEEP
    assert library.called == function
    assert gap < SLEEP * 0.75


def test_a_call_that_keeps_the_gil_would_be_seen(library: CLibrary) -> None:
    holding = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_uint32)(library.address("aclmdlUnload"))
    library.answer(0, seconds=SLEEP)

    assert largest_gap_during(lambda: holding(1)) >= SLEEP * 0.9


def test_threads_do_not_share_the_cell_of_an_out_pointer(library: CLibrary) -> None:
    """Two calls at once: each is given what C wrote for it, not what it wrote for the other."""
    driver = library.driver()
    results: dict[int, int] = {}
    echo = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_int)

    @echo
    def malloc(out: Any, size: int, policy: int) -> int:
        out[0] = size
        time.sleep(0.05)
        return 0

    driver.c.aclrtMalloc = malloc

    def run(size: int) -> None:
        results[size] = driver.malloc(size)

    threads = [threading.Thread(target=run, args=(size,)) for size in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {size: size for size in range(1, 9)}


# -- where something is missing ---------------------------------------------------------------------------------------


class Recorder:
    """Functions of pyACL that note their calls and succeed."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def module(self) -> ModuleType:
        acl = ModuleType("acl")
        acl.rt, acl.mdl = self, self  # type: ignore[attr-defined]
        acl.init = self.init  # type: ignore[attr-defined]
        return acl

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def function(*args: Any) -> Any:
            self.calls.append((name, args))
            return (77, 0) if name in ("load_from_file", "malloc") else 0

        return function


LACKING = ("aclInit", "aclmdlLoadFromFile", "aclmdlUnload", "aclrtSynchronizeStreamWithTimeout")


def test_what_the_library_lacks_goes_through_pyacl_with_one_warning_that_names_it(
    library: CLibrary, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    lacking = CLibrary(compile_library(tmp_path_factory.mktemp("old") / "libascendcl.so", *LACKING))
    pyacl = Recorder()
    with caplog.at_level(logging.WARNING, "aioascend.driver"):
        for _ in range(2):
            driver = lacking.driver(pyacl.module())
            assert driver.init() is True
    assert driver.load_from_file("m.om") == 77
    driver.unload(77)
    assert driver.synchronize_stream(7, 250)
    driver.set_device(0)

    assert [name for name, _ in pyacl.calls] == [
        "init", "init", "load_from_file", "unload", "synchronize_stream_with_timeout",
    ]  # fmt: skip
    assert lacking.called == "aclrtSetDevice"
    (record,) = caplog.records
    assert record.name == "aioascend.driver"
    text = record.getMessage()
    assert all(name in text.split(": ", 1)[1] for name in LACKING[:3])
    assert "aclrtSetDevice" not in text
    assert "holds the GIL" in text
    assert "every Python thread" in text


def test_one_function_that_the_library_lacks_is_told_as_one(
    library: CLibrary, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    lacking = CLibrary(compile_library(tmp_path_factory.mktemp("old") / "libascendcl.so", "aclmdlUnload"))
    with caplog.at_level(logging.WARNING, "aioascend.driver"):
        lacking.driver(Recorder().module()).init()
    (record,) = caplog.records
    assert record.getMessage().startswith("1 call goes through pyACL instead")


def test_a_wait_with_a_timeout_never_becomes_one_without(
    library: CLibrary, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", "c")
    lacking = CLibrary(compile_library(tmp_path_factory.mktemp("old") / "libascendcl.so", LACKING[-1]))
    pyacl = Recorder()

    lacking.driver(pyacl.module()).synchronize_stream(7, 250)

    assert pyacl.calls == [("synchronize_stream_with_timeout", (7, 250))]


# -- the variable -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["C", "python", "pyacl,c", "1"])
def test_another_value_of_the_variable_is_refused_and_the_right_ones_named(
    library: CLibrary, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", given)
    with pytest.raises(aioascend.InvalidInput, match=r'AIOASCEND_DRIVER: wanted "pyacl" .* or "c" .*' + given):
        library.driver()


@pytest.mark.parametrize("given", ["", "  "])
def test_an_empty_variable_leaves_each_call_its_own_route(
    library: CLibrary, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", given)
    driver = library.driver(Recorder().module())
    for route in ROUTES:
        assert (getattr(driver.c, route.c) is not None) == (route.default == "c")


def test_pyacl_may_be_forced_for_every_call_and_that_is_told(
    library: CLibrary, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", " pyacl ")
    pyacl = Recorder()
    driver = library.driver(pyacl.module())
    before = library.calls
    with caplog.at_level(logging.WARNING, "aioascend.driver"):
        driver.init()
    assert driver.load_from_file("m.om") == 77
    assert driver.malloc(64) == 77
    assert library.calls == before
    assert [name for name, _ in pyacl.calls] == ["init", "load_from_file", "malloc"]
    (record,) = caplog.records
    assert "AIOASCEND_DRIVER=pyacl" in record.getMessage()


def test_a_double_without_a_c_library_goes_through_pyacl_and_nothing_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIOASCEND_DRIVER", raising=False)
    pyacl = Recorder()
    with caplog.at_level(logging.DEBUG, "aioascend.driver"):
        driver = Driver(Backend("npu", pyacl.module()), "npu:0")
        driver.init()
        driver.set_device(os.getpid() % 7)
    assert [name for name, _ in pyacl.calls] == ["init", "set_device"]
    assert caplog.records == []
