"""What is checked of a file before an NPU loads it, and what is added when the NPU refuses it."""

from __future__ import annotations

import itertools
import pickle
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import aioascend
from aioascend import testing
from aioascend.testing import StubDriver
from tests.om import writer

CHIP = "Ascend310P3"


def stubbed() -> AbstractContextManager[StubDriver]:
    return testing.stubbed(soc_name=CHIP)


def refused(model: Any, **options: Any) -> aioascend.ModelLoadError:
    with pytest.raises(aioascend.ModelLoadError) as caught:
        aioascend.Session(model, devices="npu:0", **options).open_sync()
    assert "\n" not in str(caught.value)
    return caught.value


def save(path: Path, **changes: Any) -> Path:
    path.write_bytes(writer.simple(**changes))
    return path


def test_a_model_for_another_chip_never_reaches_the_driver(tmp_path: Path) -> None:
    path = save(tmp_path / "model.om", attrs={"soc_version": "Ascend910B4"})
    with stubbed() as stub:
        error = refused(path)
        assert not [call for call in stub.log if "load_from" in call.function]
        stub.assert_balanced()
    assert str(path) in str(error)
    assert f"compiled for Ascend910B4, but npu:0 is {CHIP}" in str(error)
    assert f"atc --soc_version={CHIP}" in str(error)
    assert (error.path, error.code, error.name) == (str(path), 507008, "ACL_ERROR_RT_SOC_VERSION")


def test_bytes_are_checked_like_files() -> None:
    with stubbed():
        assert "compiled for Ascend910B4" in str(refused(writer.simple(attrs={"soc_version": "Ascend910B4"})))


@pytest.mark.parametrize("chip", [CHIP, "Ascend310P", "Ascend310P1", "Something", ""])
def test_a_doubtful_chip_is_left_to_the_driver(tmp_path: Path, chip: str) -> None:
    path = save(tmp_path / "model.om", attrs={"soc_version": chip})
    with stubbed() as stub, aioascend.Session(path, devices="npu:0") as session:
        assert session.ready
        assert [call for call in stub.log if "load_from" in call.function]


def fail_loads(stub: StubDriver, code: int) -> None:
    for name in ("acl.mdl.load_from_file", "acl.mdl.load_from_mem"):
        stub.fail(name, code, times=None)


def test_a_doubtful_chip_is_mentioned_when_the_driver_refuses(tmp_path: Path) -> None:
    path = save(tmp_path / "model.om", attrs={"soc_version": "Ascend310P1"})
    with stubbed() as stub:
        fail_loads(stub, 545001)
        error = refused(path)
    assert "545001 (ACL_ERROR_GE_LOAD_MODEL)" in str(error)
    assert f"It was compiled for Ascend310P1, and the device is {CHIP}" in str(error)
    assert (error.path, error.code, error.name) == (str(path), 545001, "ACL_ERROR_GE_LOAD_MODEL")


def test_the_right_chip_is_not_mentioned(tmp_path: Path) -> None:
    path = save(tmp_path / "model.om", attrs={"soc_version": CHIP})
    with stubbed() as stub:
        fail_loads(stub, 545001)
        assert "compiled for" not in str(refused(path))


def test_a_damaged_file_is_left_to_the_driver_and_its_damage_told_beside_what_that_says(tmp_path: Path) -> None:
    path = tmp_path / "half.om"
    path.write_bytes(writer.simple()[:600])
    with stubbed() as stub:
        fail_loads(stub, 145006)
        error = refused(path)
    assert error.code == 145006
    assert "The file itself: at byte 184: cut short" in str(error)


def test_a_model_that_no_device_loads_is_told_beside_what_the_driver_says() -> None:
    with stubbed() as stub:
        fail_loads(stub, 145000)
        assert "The file itself: it is a bundle of whole models" in str(refused(writer.bundle([writer.simple()])))


def test_no_file_at_all_has_the_code_of_the_driver(tmp_path: Path) -> None:
    with stubbed():
        error = refused(tmp_path / "missing.om")
        assert (error.path, error.code) == (str(tmp_path / "missing.om"), 145002)
        (tmp_path / "empty.om").touch()
        assert refused(tmp_path / "empty.om").code == 145006
        assert refused(tmp_path).code == 145002
        (tmp_path / "random.om").write_bytes(bytes(range(256)) * 16)
        assert "it is no offline model: it begins with" in str(refused(tmp_path / "random.om"))
        assert "convert" not in str(refused(tmp_path / "random.om")).lower()


def test_a_dry_run_on_an_npu_is_refused() -> None:
    with stubbed(), pytest.raises(aioascend.InvalidInput, match="dry_run is for the emulator, npu:0 computes"):
        aioascend.Session(writer.simple(), devices="npu:0", dry_run=True).open_sync()


def test_load_errors_can_be_sent_between_processes() -> None:
    error = aioascend.ModelLoadError("text", path="/m.om", code=145006, name="NAME", detail="why")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.code, again.name, again.detail) == ("text", "/m.om", 145006, "NAME", "why")


def test_checking_takes_no_time_that_grows_with_the_graph() -> None:
    # Without its graphs a model is read in as many steps as it has sections and attributes.
    from aioascend import om

    operators = [writer.operator(f"op{index}", "Add") for index in itertools.repeat(0, 20_000)]
    operators.append(b"\xff" * 3)  # a damaged operator at the end, which is not even seen
    data = writer.simple(operators)
    assert om.read(data, graphs=False).soc_version == "Ascend310P3"
    with pytest.raises(om.OmError):
        om.read(data)
