"""`aioascend.testing`: an emulator or a stub in the place of a device."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import aioascend
from aioascend import testing
from aioascend.emulator import Emulator
from aioascend.testing import StubDriver, as_acl, assert_balanced, emulated, stubbed

from .. import kit

ROOT = Path(__file__).parent.parent.parent

two_devices = testing.emulator_fixture(devices=2)
stub_of_two_devices = testing.stub_fixture(devices=2)


def test_importing_it_imports_neither_pytest_nor_onnxruntime() -> None:
    code = "import sys, aioascend.testing; sys.exit(bool({'pytest', 'onnxruntime'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


# -- in the place of pyACL ---------------------------------------------------------------------------------------------


def test_import_acl_finds_the_double_inside_the_block_alone() -> None:
    outer, inner = StubDriver().acl, StubDriver().acl
    before = sys.modules.get("acl")
    with as_acl(outer):
        assert importlib.import_module("acl") is outer
        with as_acl(inner):
            assert importlib.import_module("acl.rt") is inner.rt
            assert importlib.util.find_spec("acl.mdl") is not None
        assert importlib.import_module("acl.rt") is outer.rt
    assert sys.modules.get("acl") is before
    assert [name for name in sys.modules if name.startswith("acl.")] == []


def test_an_emulator_or_stub_stands_for_its_module() -> None:
    for double in (Emulator(), StubDriver()):
        with as_acl(double) as acl:
            assert acl is double.acl
            assert importlib.import_module("acl") is acl


def test_what_is_no_module_is_refused_before_anything_is_taken_away() -> None:
    outer = StubDriver().acl
    with as_acl(outer):
        with pytest.raises(TypeError, match="not int"), as_acl(3):  # type: ignore[arg-type]
            pass
        assert importlib.import_module("acl.rt") is outer.rt
    assert "acl.rt" not in sys.modules


def test_a_pyacl_program_can_be_tested_in_process() -> None:
    with emulated() as emulator, as_acl(emulator.acl):
        acl = importlib.import_module("acl")
        assert (acl.init(), acl.rt.set_device(0)) == (0, 0)
        stream, ret = acl.rt.create_stream()
        assert ret == 0
        assert {leak.kind for leak in emulator.report().leaks} == {"init", "device", "stream"}
        assert (acl.rt.destroy_stream(stream), acl.rt.reset_device(0), acl.finalize()) == (0, 0, 0)


# -- the emulator ------------------------------------------------------------------------------------------------------


def test_sessions_run_on_an_emulator_of_the_test_s_own(two_devices: Emulator) -> None:
    model = kit.add(1.0)
    with aioascend.Session(model, devices="emulator:1") as session:
        assert session.infer_sync(np.zeros(4, np.float32))["y"].tolist() == [1.0] * 4
        assert len(two_devices.threads) > 0
    assert not two_devices.threads


def test_faults_can_be_asked_for_in_a_text() -> None:
    x = np.zeros(4, np.float32)
    with (
        emulated(faults="task.execute=507015"),
        aioascend.Session(kit.add(1.0), devices="emulator:0") as session,
    ):
        with pytest.raises(aioascend.ExecutionFailed, match="507015"):
            session.infer_sync(x)
        assert session.infer_sync(x)["y"].tolist() == [1.0] * 4


def test_what_a_block_leaves_behind_fails_it() -> None:
    def leaves_a_block() -> None:
        with emulated() as emulator:
            acl = emulator.acl
            acl.init()
            acl.rt.set_device(0)
            acl.rt.malloc_host(64)
            acl.rt.reset_device(0)

    with pytest.raises(AssertionError, match=r"1 not balanced:\n  pinned memory 0x\w+ of 64 bytes, made at .*test_dou"):
        leaves_a_block()


def test_what_hardware_forbids_fails_a_block_and_its_own_failure_comes_first() -> None:
    def frees_twice(problem: Exception | None = None) -> None:
        with emulated() as emulator:
            acl = emulator.acl
            acl.init()
            acl.rt.set_device(0)
            pointer, _ = acl.rt.malloc(64, 0)
            acl.rt.free(pointer)
            assert acl.rt.free(pointer) != 0
            acl.rt.reset_device(0)
            if problem is not None:
                raise problem

    with pytest.raises(AssertionError, match="double-free"):
        frees_twice()
    with pytest.raises(KeyError, match="mine"):
        frees_twice(KeyError("mine"))


def test_a_session_left_open_is_told(request: pytest.FixtureRequest) -> None:
    session = aioascend.Session(kit.add(1.0), devices="emulator:0")
    request.addfinalizer(session.close_sync)

    with emulated(check=False):
        session.open_sync()
        with pytest.raises(AssertionError, match="emulator:0 still open before the block"), emulated():
            raise NotImplementedError("is not reached")
        session.close_sync()


def test_a_result_that_is_let_go_after_its_session_was_closed_is_no_fault() -> None:
    for _ in range(5):
        with emulated():
            session = aioascend.Session(kit.add(1.0), devices="emulator:0")
            session.open_sync()
            result = session.infer_sync(np.zeros(4, np.float32), outputs="leased")[0]
            session.close_sync()
            del result


# -- the stub ----------------------------------------------------------------------------------------------------------


def use(stub: StubDriver) -> None:
    with aioascend.Session(stub.model, devices="npu:0") as session:
        assert session.infer_sync(np.ones(4, np.float32), timeout=30)["y"].tolist() == [0.0] * 4


def test_a_session_on_the_stub_balances() -> None:
    with stubbed() as stub:
        use(stub)
        stub.assert_balanced()
    counts = stub.counts
    assert counts["acl.mdl.load_from_mem"] == counts["acl.mdl.unload"] == 1
    assert counts["acl.rt.malloc"] == counts["acl.rt.free"] > 0
    assert counts["acl.rt.create_stream"] == counts["acl.rt.destroy_stream"] == 3
    assert counts["acl.mdl.execute_async"] == 1
    assert stub.total == len(stub.log) == sum(counts.values())


def test_every_call_of_a_session_has_a_context_of_its_device(stub_of_two_devices: StubDriver) -> None:
    stub = stub_of_two_devices
    with aioascend.Session(stub.model, devices="npu:1") as session:
        session.infer_sync(np.ones(4, np.float32))
    assert [call for call in stub.log if call.code == 107002] == []
    assert {call.arguments[0] for call in stub.log if call.function == "acl.rt.set_device"} == {1}


def test_whichever_call_fails_everything_is_released() -> None:
    for k in itertools.count(1):
        with stubbed() as stub:
            stub.fail_at(k, 207001)
            try:
                use(stub)
            except aioascend.DeadlineExceeded:
                raise  # whoever waits must be told of the failure, not left to a deadline
            except (aioascend.AioascendError, KeyError):
                pass
            assert_balanced(stub)
        # How often the report thread asks depends on time: the last calls are those that may not be reached.
        if not any(call.injected for call in stub.log):
            break
    assert k > 50


@pytest.fixture
def stub() -> StubDriver:
    stub = StubDriver(memory=1 << 20)
    assert (stub.acl.init(), stub.acl.rt.set_device(0)) == (0, 0)
    return stub


def test_the_stub_fails_the_call_it_was_told_to(stub: StubDriver) -> None:
    rt = stub.acl.rt
    stub.fail("rt.malloc", 207001, nth=2)
    stub.fail("acl.mdl.create_desc", 1)
    assert [rt.malloc(64, 0)[1] for _ in range(3)] == [0, 207001, 0]
    assert stub.acl.get_recent_err_msg() == "E207001: acl.rt.malloc was told to fail"
    assert stub.acl.get_recent_err_msg() is None
    assert stub.acl.mdl.create_desc() == 0
    stub.fail_at(2, 507010, times=None)
    assert (rt.get_context()[1], rt.get_context()[1], rt.create_stream()[1]) == (0, 507010, 507010)
    stub.clear()
    assert rt.get_context()[1] == 0
    with pytest.raises(ValueError, match=r"no such function of the stub: acl\.rt\.mallok"):
        stub.fail("rt.mallok", 1)
    with pytest.raises(ValueError, match="wanted a count from 1 and a code other than 0, given 0 and 1"):
        stub.fail("rt.malloc", 1, nth=0)


def test_the_stub_keeps_books(stub: StubDriver) -> None:
    rt = stub.acl.rt
    (one, _), (two, _) = rt.malloc(64, 0), rt.malloc_host(64)
    assert [(live.kind, live.handle) for live in stub.live()] == [("device memory", one), ("pinned memory", two)]
    assert rt.free(two) == 100000
    assert rt.free(one) == 0
    assert rt.free(one) == 100000
    with pytest.raises(AssertionError) as failure:
        assert_balanced(stub)
    assert str(failure.value).splitlines() == [
        "4 not balanced:",
        f"  pinned memory {two:#x}, made by call 4",
        "  device 0, set and not reset",
        f"  acl.rt.free of {two:#x}, which is no device memory (call 5)",
        f"  acl.rt.free of {one:#x}, which is no device memory (call 7)",
    ]


def test_the_stub_is_as_strict_as_pyacl(stub: StubDriver) -> None:
    rt = stub.acl.rt
    with pytest.raises(TypeError, match=r"acl\.rt\.malloc: args could not be parsed"):
        rt.malloc(64)
    with pytest.raises(TypeError):
        rt.malloc(size=64, policy=0)
    assert rt.malloc(2 << 20, 0) == (0, 207001)
    assert rt.memcpy(0, 1, 0, 2, 1) == 100000
    assert rt.set_device(7) == 107001
    assert stub.acl.init() == 100002
    assert rt.launch_callback(print, None, 0, rt.create_stream()[0]) == 107015
    assert rt.process_report(10) == 107012
    context, _ = rt.get_context()
    mine, _ = rt.create_stream()
    other, _ = rt.create_context(0)
    assert rt.synchronize_stream(mine) == 107003
    assert rt.set_context(context) == rt.destroy_context(other) == 0
    fresh = StubDriver().acl
    assert fresh.rt.set_device(0) == 100001
    fresh.init()
    assert fresh.rt.create_stream() == (0, 107002)


def test_old_cann_has_no_ex_events() -> None:
    assert not hasattr(StubDriver(ex_events=False).acl.rt, "create_event_ex_with_flag")
    assert hasattr(StubDriver().acl.rt, "create_event_ex_with_flag")


def functions(acl: ModuleType) -> dict[str, Callable[..., object]]:
    modules = {"acl": acl, **{f"acl.{part}": getattr(acl, part) for part in ("rt", "mdl", "util")}}
    return {
        f"{where}.{name}": value
        for where, module in modules.items()
        for name, value in vars(module).items()
        if callable(value)
    }


def test_the_stub_s_functions_take_and_give_what_the_emulator_s_do() -> None:
    stub, real = functions(StubDriver().acl), functions(Emulator().acl)
    assert set(stub) <= set(real)
    # Nothing is initialised: nearly all of them fail once the number of arguments is right.
    differing = {}
    for name in sorted(set(stub) - {"acl.init"}):
        (count, values), (wanted, given) = form(stub[name]), form(real[name])
        if count != wanted or (values != given and None not in (values, given)):
            differing[name] = (count, values), (wanted, given)
    assert differing == {}


def form(function: Callable[..., object]) -> tuple[int, int | None]:
    """How many arguments a function takes, and how many values it gives (0: one bare one; None: it refused a 0)."""
    for count in range(8):
        try:
            result = function(*([0] * count))
        except TypeError as error:
            if "arguments" not in str(error) and "argument:" not in str(error):
                return count, None
        except ValueError:
            return count, None
        else:
            return count, len(result) if isinstance(result, tuple) else 0
    raise AssertionError("takes more than 7")
