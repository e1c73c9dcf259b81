"""init, devices, contexts, and the threads that come and go with them (pyACL reference §4, §5)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from aioascend.emulator import Config, Emulator

from .kit import Driver


def test_init_and_finalize_complain_about_repeats() -> None:
    acl: Any = Emulator(Config(memory=1 << 20)).acl
    assert acl.rt.set_device(0) == 100001
    assert acl.init() == 0
    assert acl.init() == 100002
    assert acl.finalize() == 0
    assert acl.finalize() == 100037
    assert acl.init() == 0


def test_init_reads_its_config_file(tmp_path: Any) -> None:
    acl: Any = Emulator(Config(memory=1 << 20)).acl
    assert acl.init(str(tmp_path / "none.json")) == 100003
    (tmp_path / "bad.json").write_text("{")
    assert acl.init(str(tmp_path / "bad.json")) == 100006
    (tmp_path / "good.json").write_text("{}")
    assert acl.init(str(tmp_path / "good.json")) == 0


def test_what_the_machine_is(acl: Any) -> None:
    assert acl.get_soc_name() == "Ascend310P3"
    assert acl.rt.get_device_count() == (2, 0)
    assert acl.rt.get_run_mode() == (1, 0)
    assert acl.get_version()[-1] == 0
    assert acl.rt.query_device_status(0) == (0, 0)


def test_the_error_text_is_of_this_thread_and_read_once(acl: Any) -> None:
    assert acl.rt.set_device(7) == 107001
    seen: list[str | None] = []
    thread = threading.Thread(target=lambda: seen.append(acl.get_recent_err_msg()))
    thread.start()
    thread.join()
    assert seen == [None]
    assert "no device 7" in acl.get_recent_err_msg()
    assert acl.get_recent_err_msg() is None


def test_set_device_is_counted_and_its_context_shared(acl: Any, machine: Emulator) -> None:
    assert acl.rt.set_device(0) == 0
    context, code = acl.rt.get_context()
    assert code == 0
    other: list[Any] = []

    def elsewhere() -> None:
        other.append(acl.rt.get_context())
        acl.rt.set_device(0)
        other.append(acl.rt.get_context())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert other == [(0, 107002), (context, 0)]
    assert acl.rt.reset_device(0) == 0
    assert acl.rt.get_context() == (context, 0)
    assert acl.rt.reset_device(0) == 0
    assert acl.rt.get_context() == (0, 107002)
    assert machine.threads == ()


def test_threads_live_from_the_first_context_to_the_last(acl: Any, machine: Emulator) -> None:
    assert machine.threads == ()
    first, _ = acl.rt.create_context(0)
    threads = machine.threads
    assert len(threads) == 2
    assert all(thread.daemon for thread in threads)
    second, _ = acl.rt.create_context(0)
    assert machine.threads == threads
    assert acl.rt.destroy_context(first) == 0
    assert machine.threads == threads
    assert acl.rt.destroy_context(second) == 0
    assert machine.threads == ()
    assert not any(thread.is_alive() for thread in threads)


def test_a_device_can_be_opened_again(acl: Any, machine: Emulator) -> None:
    for _ in range(20):
        driver = Driver(machine)
        driver.device(1000)
        driver.ok(acl.rt.destroy_context(driver.context))
        assert machine.threads == ()


def test_a_new_context_becomes_current_and_a_destroyed_one_is_none(acl: Any) -> None:
    first, _ = acl.rt.create_context(0)
    second, _ = acl.rt.create_context(1)
    assert acl.rt.get_context() == (second, 0)
    assert acl.rt.get_device() == (1, 0)
    assert acl.rt.set_context(first) == 0
    assert acl.rt.get_device() == (0, 0)
    assert acl.rt.destroy_context(first) == 0
    assert acl.rt.get_context() == (0, 107002)
    assert acl.rt.set_context(first) == 107002
    assert acl.rt.set_context(0) == 100000


def test_a_default_context_goes_with_its_device_only(acl: Any) -> None:
    acl.rt.set_device(0)
    context, _ = acl.rt.get_context()
    assert acl.rt.destroy_context(context) == 107002
    assert acl.rt.reset_device(0) == 0


def test_an_unknown_device_is_refused_everywhere(acl: Any) -> None:
    assert acl.rt.set_device(2) == 107001
    assert acl.rt.set_device(-1) == 107001
    assert acl.rt.create_context(2) == (0, 107001)
    assert acl.rt.reset_device(9) == 107001


def test_closing_a_device_frees_what_was_left_on_it(acl: Any, machine: Emulator) -> None:
    driver = Driver(machine)
    free, total, _ = acl.rt.get_mem_info(0)
    assert free == total
    driver.device(1 << 20)
    assert acl.rt.get_mem_info(1)[0] < total
    driver.ok(acl.rt.destroy_context(driver.context))
    Driver(machine)
    assert acl.rt.get_mem_info(0) == (total, total, 0)


def test_shutdown_ends_everything_and_may_be_repeated(machine: Emulator, npu: Driver) -> None:
    assert machine.threads
    machine.shutdown()
    machine.shutdown()
    assert machine.threads == ()
    assert npu.rt.set_device(0) == 507901


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_EMULATOR_DEVICES", "3")
    monkeypatch.setenv("AIOASCEND_EMULATOR_MEMORY", "512M")
    monkeypatch.setenv("AIOASCEND_EMULATOR_THREADS", "2")
    assert Config.from_env() == Config(devices=3, memory=512 << 20, intra_op_threads=2)
    monkeypatch.setenv("AIOASCEND_EMULATOR_MEMORY", "much")
    with pytest.raises(ValueError, match=r"AIOASCEND_EMULATOR_MEMORY.*'much'"):
        Config.from_env()


def test_nonsense_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="devices must be at least 1"):
        Config(devices=0)


def test_without_ex_events_the_function_is_absent() -> None:
    acl: Any = Emulator(Config(memory=1 << 20, ex_events=False)).acl
    assert not hasattr(acl.rt, "create_event_ex_with_flag")
    assert hasattr(acl.rt, "create_event_with_flag")


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )


def test_importing_the_emulator_does_not_import_onnxruntime() -> None:
    done = _python("import sys, aioascend.emulator; sys.exit('onnxruntime' in sys.modules)")
    assert (done.returncode, done.stderr) == (0, "")


def test_touching_device_memory_from_the_host_faults() -> None:
    done = _python("""
        import ctypes
        from aioascend.emulator import Emulator
        acl = Emulator().acl
        acl.init(); acl.rt.set_device(0)
        address, _ = acl.rt.malloc(64, 0)
        ctypes.string_at(address, 1)
    """)
    assert done.returncode == -11


def test_an_interpreter_may_end_in_the_middle_of_a_run() -> None:
    done = _python("""
        import numpy as np
        from aioascend.emulator import Emulator
        from tests.emulator.kit import Driver, slow
        emulator = Emulator()
        emulator.acl.init()
        npu = Driver(emulator)
        model = npu.load(slow(2000))
        x = np.ones((500, 500), np.float32)
        given, taken, _ = npu.bind([x], [x])
        npu.ok(npu.mdl.execute_async(model, given, taken, npu.stream()))
        print("submitted")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "submitted\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_forked_child_is_refused_and_does_not_hang() -> None:
    done = _python("""
        import os, warnings
        warnings.simplefilter("ignore")
        from aioascend.emulator import Emulator
        emulator = Emulator()
        acl = emulator.acl
        acl.init(); context, _ = acl.rt.create_context(0); stream, _ = acl.rt.create_stream()
        child = os.fork()
        if child == 0:
            codes = [acl.rt.set_device(0), acl.rt.synchronize_stream(stream), acl.rt.set_context(context)]
            emulator.shutdown()
            fresh = Emulator()
            codes += [fresh.acl.init(), fresh.acl.rt.set_device(0), fresh.acl.rt.reset_device(0)]
            os._exit(0 if codes == [507033, 507033, 507033, 0, 0, 0] else 1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), acl.rt.synchronize_stream(stream))
    """)
    assert done.stdout == "0 0\n"
    (said,) = done.stderr.splitlines()
    assert said.startswith("used-in-forked-child: process ")
    assert "acl.rt.set_device at <string>:" in said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_what_needs_no_device_works_in_a_forked_child() -> None:
    done = _python("""
        import os, warnings
        warnings.simplefilter("ignore")
        from aioascend.emulator import Emulator
        acl = Emulator().acl
        acl.init(); acl.rt.set_device(0)
        child = os.fork()
        if child == 0:
            known = [acl.get_soc_name(), acl.rt.get_device_count(), acl.data_type_size(0), acl.finalize(), acl.init()]
            address = acl.util.bytes_to_ptr(b"abc")
            print(acl.util.ptr_to_bytes(address, 3), known, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """)
    assert done.stdout == "b'abc' ['Ascend310P3', (1, 0), 4, 100037, 507033]\n"


LATE = """
import os
from aioascend.emulator import Config, Emulator

emulator = Emulator(Config(memory=1 << 26))
acl = emulator.acl

class Resources:
    def __init__(self):
        acl.init(); acl.rt.set_device(0)
        self.acl, self.write = acl, os.write
        self.stream, self.memory = acl.rt.create_stream()[0], acl.rt.malloc(8, 0)[0]
        self.pinned = acl.rt.malloc_host(8)[0]

    def __del__(self):
        acl = self.acl
        codes = [acl.finalize(), acl.rt.synchronize_stream(self.stream), acl.rt.destroy_stream(self.stream)]
        codes += [acl.rt.free(self.memory), acl.rt.free_host(self.pinned), acl.destroy_data_buffer(self.memory)]
        codes += [acl.rt.reset_device(0), acl.rt.set_device(0), acl.finalize()]
        self.write(1, repr(codes).encode())
"""


@pytest.mark.parametrize(
    "place", ["kept = ", "import builtins; builtins.kept = ", "kept = []; kept += [kept]; kept[0] = "]
)
def test_destructors_at_the_end_of_the_interpreter_get_codes_and_no_exceptions(place: str) -> None:
    done = _python(f"{LATE}\n{place}Resources()")
    assert done.stdout == "[0, 0, 0, 0, 0, 100000, 0, 507901, 100037]"
    (said,) = done.stderr.splitlines()
    assert said.startswith("after-finalize: ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_child_forked_before_anything_was_initialised_is_a_process_of_its_own() -> None:
    done = _python("""
        import os, warnings
        warnings.simplefilter("ignore")
        from aioascend.emulator import Emulator
        emulator = Emulator()
        acl = emulator.acl
        child = os.fork()
        if child == 0:
            codes = [acl.init(), acl.rt.set_device(0), acl.rt.synchronize_stream(0), acl.rt.reset_device(0)]
            os._exit(0 if codes == [0, 0, 0, 0] else 1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), acl.init(), acl.rt.set_device(0))
    """)
    assert (done.stdout, done.stderr) == ("0 0 0\n", "")
