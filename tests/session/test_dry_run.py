"""A session on a real offline model without an NPU: what it takes and gives is the file's, its outputs are made up."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from tests import kit
from tests.om import real, writer

pytestmark = pytest.mark.usefixtures("emulator")

DTYPES = {0: np.float32, 1: np.float16, 4: np.uint8}


def specs(tensors: list[dict[str, Any]]) -> list[aioascend.TensorSpec]:
    return [
        aioascend.TensorSpec(one["name"], np.dtype(DTYPES[one["acl_dtype"]]), tuple(one["dims"])) for one in tensors
    ]


def check_real_file(name: str, dry_run: bool) -> None:
    wanted = real.expected(name)["models"][0]
    with aioascend.Session(real.path(name), devices="emulator:0", dry_run=dry_run) as session:
        assert list(session.inputs) == specs(wanted["inputs"])
        assert list(session.outputs) == specs(wanted["outputs"])
        outputs = session.infer_sync([np.ones(spec.shape, spec.dtype) for spec in session.inputs])
    assert outputs.synthetic is True
    assert "synthetic" in repr(outputs)
    for array, told in zip(outputs, wanted["outputs"], strict=True):
        assert array.nbytes == told["acl_size"]
        assert np.array_equal(array.reshape(-1), np.arange(array.size) % 100)


@pytest.mark.parametrize("name", ["a3c_pong.om", "modelbox_2d_2048.om"])
def test_real_files_have_their_names_dtypes_shapes_and_sizes(name: str) -> None:
    check_real_file(name, dry_run=True)


@pytest.mark.emulated(soc_name="AscendUnheardOf")
def test_a_real_file_opens_where_nothing_is_known_against_it() -> None:
    check_real_file("vae_hh.om", dry_run=True)


def test_a_real_file_for_another_chip_is_refused_with_both_names() -> None:
    refused(real.path("vae_hh.om"), aioascend.ModelLoadError, "Ascend310, but emulator:0 is Ascend310P3", dry_run=True)


@pytest.mark.emulated(dry_run=True)
def test_the_emulator_may_be_told_once_for_all() -> None:
    check_real_file("a3c_pong.om", dry_run=False)


@pytest.mark.parametrize("of", ["path", "bytes"])
async def test_inputs_are_checked_as_ever(tmp_path: Path, of: str) -> None:
    (tmp_path / "model.om").write_bytes(writer.simple())
    model = writer.simple() if of == "bytes" else tmp_path / "model.om"
    async with aioascend.Session(model, devices="emulator:0", instances=2, dry_run=True) as session:
        with pytest.raises(aioascend.InvalidInput, match=r"wanted float32 of shape \(1, 3, 4, 4\), given float16"):
            await session.infer(np.zeros((1, 3, 4, 4), np.float16))
        outputs = await session.infer(np.zeros((1, 3, 4, 4), np.float32))
        assert outputs["y"].tolist() == [[0, 1, 2, 3, 4]]
        assert outputs["y"].dtype == np.float16


def test_a_warning_is_logged_at_open(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "aioascend"),
        aioascend.Session(writer.simple(), devices="emulator:0", dry_run=True, instances=3),
    ):
        pass
    (record,) = caplog.records
    assert "a dry run; nothing is computed, the outputs are made up" in record.getMessage()


def test_outputs_of_a_computed_model_are_not_synthetic() -> None:
    with aioascend.Session(kit.add(1), devices="emulator:0") as session:
        outputs = session.infer_sync(np.zeros(4, np.float32))
    assert outputs.synthetic is False
    assert "synthetic" not in repr(outputs)


def refused(model: Any, error: type[Exception], text: str, **options: Any) -> Exception:
    with pytest.raises(error, match=text) as caught:
        aioascend.Session(model, devices="emulator:0", **options).open_sync()
    return caught.value


def test_without_asking_the_error_says_what_to_do() -> None:
    text = r"give the \.onnx it was made from, or ask for a dry run.*Session\(\.\.\., dry_run=True\)"
    refused(writer.simple(), aioascend.ModelLoadError, text)


def test_a_dry_run_of_what_the_emulator_computes_is_refused() -> None:
    refused(kit.add(1), aioascend.InvalidInput, "dry_run is for .om files", dry_run=True)


def test_options_that_fix_axes_are_refused() -> None:
    refused(writer.simple(), aioascend.InvalidInput, "Leave them out", dry_run=True, shapes={"x": (1, 3, 4, 4)})


def test_another_chip_is_told_with_both_names(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(writer.simple(attrs={"soc_version": "Ascend910B4"}))
    text = "compiled for Ascend910B4, but emulator:0 is Ascend310P3.*AIOASCEND_EMULATOR_SOC=Ascend910B4"
    error = refused(path, aioascend.ModelLoadError, text, dry_run=True)
    assert isinstance(error, aioascend.ModelLoadError)
    assert (error.path, error.code, error.name) == (str(path), 507008, "ACL_ERROR_RT_SOC_VERSION")


@pytest.mark.parametrize("chip", ["Ascend310P", "Ascend310P1", "SomethingNew", ""])
def test_a_chip_of_the_same_family_or_unknown_is_let_in(chip: str) -> None:
    model = writer.simple(attrs={"soc_version": chip})
    with aioascend.Session(model, devices="emulator:0", dry_run=True) as session:
        assert len(session.inputs) == 1


@pytest.mark.parametrize("kind", ["batch", "hw", "dims"])
def test_gears_are_refused_as_on_an_npu(kind: str) -> None:
    refused(writer.geared(kind), aioascend.ModelLoadError, "compiled with gears or open shapes", dry_run=True)


def test_what_no_device_loads_is_not_opened_for_a_dry_run_either() -> None:
    phone = real.path("hiai_relu.om")
    refused(phone, aioascend.ModelLoadError, "HiAI model for Kirin phones", dry_run=True)
    refused(writer.simple(encrypted=1), aioascend.ModelLoadError, "is encrypted", dry_run=True)
    refused(writer.bundle([writer.simple()]), aioascend.ModelLoadError, "a bundle of whole models", dry_run=True)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    "name, make, code",
    [
        ("half.om", lambda path: path.write_bytes(writer.simple()[:700]), 145006),
        ("empty.om", lambda path: path.write_bytes(b""), 145006),
        ("missing.om", lambda path: None, 145002),
        ("directory.om", lambda path: path.mkdir(), 145002),
        ("random.om", lambda path: path.write_bytes(np.random.default_rng(0).bytes(4096)), 145006),
        ("pipe.om", os.mkfifo, 145002),
    ],
)
def test_every_bad_file_is_one_kind_of_error_with_path_code_and_name(
    tmp_path: Path, emulator: Emulator, name: str, make: Callable[[Path], object], code: int, dry_run: bool
) -> None:
    path = tmp_path / name
    make(path)
    error = refused(path, aioascend.ModelLoadError, name, dry_run=dry_run)
    assert isinstance(error, aioascend.ModelLoadError)
    assert error.path == str(path)
    assert error.code == code
    assert error.name.startswith("ACL_ERROR_")
    assert str(error.code) in str(error)
    assert error.name in str(error)
    # the device stays usable
    with aioascend.Session(kit.add(1), devices="emulator:0") as session:
        assert session.infer_sync(np.zeros(4, np.float32))[0].tolist() == [1, 1, 1, 1]


def test_bytes_that_are_no_model_are_told_as_such_when_a_dry_run_of_them_is_wanted() -> None:
    refused(b"no model at all", aioascend.ModelLoadError, "it is no offline model", dry_run=True)
