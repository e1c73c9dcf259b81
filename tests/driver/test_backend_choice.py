"""Which `acl` serves a device: pyACL where it works, a clear reason where it does not, never silently another."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aioascend
from aioascend import driver
from aioascend.driver import backends as choice
from aioascend.emulator import Emulator


@pytest.fixture(autouse=True)
def no_acl_yet(monkeypatch: pytest.MonkeyPatch, emulator: Emulator) -> Iterator[None]:
    """No `acl` module is imported, none is known, and none is left."""
    monkeypatch.delitem(sys.modules, "acl", raising=False)
    monkeypatch.delenv("AIOASCEND_DEVICES", raising=False)
    monkeypatch.setattr(choice, "_warned", False)
    old = choice._backends.pop("npu", None)
    yield
    driver.restore("npu", old)
    for name in [name for name in sys.modules if name.split(".")[0] == "acl"]:
        del sys.modules[name]


def write_acl(folder: Path, source: str) -> None:
    (folder / "acl.py").write_text(source)


async def test_an_import_that_fails_half_way_is_told_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    write_acl(tmp_path, "raise ImportError('libascendcl.so: cannot open shared object file: No such file')")
    for devices in ("auto", "npu:0", "all"):
        with pytest.raises(aioascend.BackendUnavailable, match=r"libascendcl\.so: cannot open shared object") as caught:
            await aioascend.Session(b"x", devices=devices).open()
        assert "set_env.sh" in str(caught.value)


async def test_another_module_named_acl_is_not_taken_for_pyacl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    write_acl(tmp_path, "ACCESS = 'control list'")
    with pytest.raises(aioascend.BackendUnavailable, match=r"acl\.py is not pyACL \(it has no init"):
        await aioascend.Session(b"x").open()


async def test_without_pyacl_auto_is_the_emulator_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aioascend"):
        assert [str(name) for name in driver.resolve("auto")] == ["emulator:0"]
        assert [str(name) for name in driver.resolve("all")] == ["emulator:0", "emulator:1"]
    assert [record.message for record in caplog.records] == [
        "no NPU found: running on the emulator (ONNX Runtime on the CPU)"
    ]


async def test_naming_an_npu_never_falls_back() -> None:
    with pytest.raises(aioascend.BackendUnavailable, match="no pyACL here"):
        await aioascend.Session(b"x", devices="npu:0").open()


def test_an_npu_is_taken_where_pyacl_finds_one(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acl", emulator.acl)  # an acl module with two devices
    assert [str(name) for name in driver.resolve("auto")] == ["npu:0"]
    assert [str(name) for name in driver.resolve("npu:1")] == ["npu:1"]
    with pytest.raises(aioascend.BackendUnavailable, match="no device npu:2: there is npu:0 to npu:1"):
        driver.resolve("npu:2")


async def test_pyacl_without_an_npu_leaves_auto_to_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    without = Emulator()
    monkeypatch.setattr(without.acl.rt, "get_device_count", lambda: (0, 0))
    monkeypatch.setitem(sys.modules, "acl", without.acl)
    assert [str(name) for name in driver.resolve("auto")] == ["emulator:0"]
    monkeypatch.setattr(without.acl.rt, "get_device_count", lambda: (0, 507033))
    with pytest.raises(aioascend.BackendUnavailable, match=r"507033 \(ACL_ERROR_RT_DEV_SETUP_ERROR\).*npu-smi info"):
        driver.resolve("auto")


def test_the_environment_says_what_auto_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_DEVICES", "emulator:1")
    assert [str(name) for name in driver.resolve("auto")] == ["emulator:1"]
    assert [str(name) for name in driver.resolve("emulator")] == ["emulator:0"]
    monkeypatch.setenv("AIOASCEND_DEVICES", "cuda:0")
    with pytest.raises(aioascend.InvalidInput, match="unknown device 'cuda:0'"):
        driver.resolve("auto")


@pytest.mark.parametrize("name", ["", "npu", "emulator:x", "emulator:-1", "npu 0", "NPU:0", "emulator:0,"])
def test_a_text_that_is_no_device_name_is_refused(name: str) -> None:
    with pytest.raises((aioascend.InvalidInput, aioascend.BackendUnavailable)):
        driver.resolve(name)


def test_an_emulator_that_cannot_be_set_up_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    choice._backends.pop("emulator", None)  # the fixture puts back what there was
    for text in ("abc", "100"):
        monkeypatch.setenv("AIOASCEND_EMULATOR_MEMORY", text)
        with pytest.raises(aioascend.InvalidInput, match=f"the emulator cannot be set up: .*{text}"):
            driver.resolve("emulator:0")


async def test_an_onnx_on_an_npu_is_told_how_to_convert_it(emulator: Emulator) -> None:
    """The same acl module taken for pyACL: what an NPU cannot load is refused with the remedy."""
    from tests import kit

    driver.install(driver.Backend("npu", emulator.acl))
    with pytest.raises(aioascend.ModelLoadError, match=r"atc --framework=5 .* --soc_version=Ascend310P3"):
        await aioascend.Session(kit.add(1), devices="npu:0").open()
    with pytest.raises(aioascend.InvalidInput, match=r"shapes were fixed by ATC"):
        await aioascend.Session(b"IMOD" + bytes(300), devices="npu:0", shapes={"x": (1,)}).open()
    with pytest.raises(aioascend.ModelLoadError, match="could not be loaded on npu:0"):
        await aioascend.Session(b"IMOD" + bytes(300), devices="npu:0").open()
