"""`aioascend.inspect`: what an offline model is, without a device."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import aioascend
from tests.om import real, writer


def test_inputs_and_outputs_are_those_that_a_session_would_have() -> None:
    model = aioascend.inspect(writer.simple())
    assert model.inputs == (aioascend.TensorSpec("x", np.dtype(np.float32), (1, 3, 4, 4)),)
    assert model.outputs == (aioascend.TensorSpec("conv:0:y", np.dtype(np.float16), (1, 5)),)
    assert (model.soc_version, model.work_size, model.weight_size) == ("Ascend310P3", 4096, 64)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.path = "other"  # type: ignore[misc]


def test_a_type_that_numpy_has_not_is_told_when_it_is_asked_for() -> None:
    model = aioascend.inspect(writer.simple([writer.data("x", 0, writer.INT4, [4]), writer.net_output([], [])]))
    assert model.om.inputs[0].dtype == "int4"
    with pytest.raises(aioascend.ModelLoadError, match="input 'x' is int4"):
        _ = model.inputs


def test_a_bad_file_is_a_load_error_with_path_place_and_code(tmp_path: Path) -> None:
    path = tmp_path / "half.om"
    path.write_bytes(writer.simple()[:500])
    with pytest.raises(aioascend.ModelLoadError, match="at byte 184: cut short") as caught:
        aioascend.inspect(path)
    error = caught.value
    assert (error.path, error.code, error.name) == (str(path), 145006, "ACL_ERROR_GE_EXEC_MODEL_DATA_SIZE_INVALID")


@pytest.mark.parametrize("model", [3, b"/tmp/x.om".decode, 1.5, None])
def test_what_is_no_path_is_invalid_input(model: object) -> None:
    with pytest.raises(aioascend.InvalidInput, match="wanted a path or bytes"):
        aioascend.inspect(model)  # type: ignore[arg-type]


def test_a_real_file() -> None:
    model = aioascend.inspect(real.path("vae_hh.om"))
    assert str(model.inputs[0]) == "input: float32[100, 784]"
    assert model.soc_version == "Ascend310"
