from __future__ import annotations

import re
import sys
from enum import Enum

import numpy as np
import pytest

from aioascend.driver import constants
from aioascend.driver.constants import DataType, numpy_dtype
from aioascend.driver.constants import data_type as acl_data_type

from .reference import section

# The member that a listed name stands for where the reference writes it otherwise.
SPELLING = {"ACL_DEVICE": "DEVICE", "ACL_HOST": "HOST"}


def listed(title: str, until: str | None = None) -> dict[str, int]:
    """Read the `NAME number` pairs of the paragraph of §14 that starts with the bold title."""
    found = re.search(rf"\*\*{re.escape(title)}\*\*(.*?)(?=\n\n|\n?\*\*[A-Z])", section(14), re.DOTALL)
    assert found, title
    text = found[1].split(until)[0] if until else found[1]
    pairs = re.findall(r"\b([A-Z][A-Z0-9_]+) (-?(?:0x[0-9A-Fa-f]+|\d+))", text)
    return {SPELLING.get(name, name): int(number, 0) for name, number in pairs}


def members(kind: type[Enum]) -> dict[str, int]:
    return {name: int(member.value) for name, member in kind.__members__.items()}


@pytest.mark.parametrize(
    "kind, title, until",
    [
        (constants.MallocPolicy, "Malloc policy", None),
        (constants.MemcpyKind, "Memcpy kind", None),
        (constants.MemoryAttr, "Memory attr", None),
        (constants.RunMode, "Run mode", None),
        (constants.EventFlag, "Event flags", None),
        (constants.CallbackBlockType, "Callback block type", None),
        (constants.FailureMode, "Failure mode", None),
        (constants.StreamFlag, "Stream flags", "FAST_LAUNCH pre-allocates"),
        (constants.TaskSchedulerId, "Task scheduler ids", None),
        (constants.OverflowMode, "Overflow mode", None),
        (constants.ModelConfigAttr, "Model-load config attrs", "Load type"),
        (constants.AippPixelFormat, "AIPP pixel format", None),
        (constants.LogLevel, "Log level", None),
    ],
)
def test_every_number_is_that_of_the_reference(kind: type[Enum], title: str, until: str | None) -> None:
    assert members(kind) == listed(title, until)


def test_the_two_ways_of_telling_completion_are_opposite() -> None:
    assert int(constants.EventRecordedStatus.COMPLETE) == 1
    for status in (constants.EventStatus, constants.EventWaitStatus, constants.StreamStatus):
        assert members(status)["COMPLETE"] == 0
        assert members(status)["NOT_READY"] == 1


def test_the_reference_and_the_enum_list_the_same_formats() -> None:
    text = re.search(r"\*\*format\*\*.*?:(.*?)\n\n", section(14), re.DOTALL)
    assert text
    pairs = {name: int(number) for name, number in re.findall(r"\b([A-Z][A-Z0-9_]+) (-?\d+)\b(?!–)", text[1])}

    ours = members(constants.Format)
    new = {name: value for name, value in ours.items() if name.startswith("FRACTAL_NZ_C0_")}
    assert sorted(new.values()) == [50, 51, 52, 53, 54]
    assert pairs == {name: value for name, value in ours.items() if name not in new}


def dtype_rows() -> list[tuple[str, int, str]]:
    """Give (ACL name, value, numpy name or "–") of the data type table; rows with several names are left out."""
    rows = []
    for line in section(14).splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 6:
            for name, value, numpy_name in (cells[:3], cells[3:]):
                if re.fullmatch(r"-?\d+", value):
                    rows.append((name, int(value), numpy_name.split()[0]))
    return rows


def test_every_data_type_of_the_reference_maps_to_its_numpy_dtype() -> None:
    rows = dtype_rows()
    assert len(rows) >= 20
    for name, value, numpy_name in rows:
        number = DataType[name.removeprefix("DT_")]
        assert number == value
        if numpy_name == "–":
            if number is not DataType.BF16:
                with pytest.raises(ValueError, match="no numpy counterpart"):
                    numpy_dtype(value)
        else:
            assert numpy_dtype(value) == np.dtype(numpy_name)


@pytest.mark.parametrize("number", [n for n in DataType if n in constants._NUMPY])
def test_a_data_type_survives_the_way_to_numpy_and_back(number: DataType) -> None:
    assert acl_data_type(numpy_dtype(number)) is number


def test_dtypes_of_equal_layout_have_one_data_type() -> None:
    assert acl_data_type(np.dtype("q")) is DataType.INT64
    assert acl_data_type(np.dtype("l")) in (DataType.INT64, DataType.INT32)


@pytest.mark.parametrize("dtype", [np.dtype(">f4"), np.dtype("U3"), np.dtype(object), np.dtype("datetime64[s]")])
def test_a_dtype_the_device_cannot_hold_is_refused_by_name(dtype: np.dtype[np.generic]) -> None:
    with pytest.raises(ValueError, match="has no ACL data type"):
        acl_data_type(dtype)


def test_bfloat16_comes_from_ml_dtypes() -> None:
    bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)

    assert numpy_dtype(DataType.BF16) == bfloat16
    assert acl_data_type(bfloat16) is DataType.BF16


def test_bfloat16_without_ml_dtypes_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    constants._bfloat16.cache_clear()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)

    with pytest.raises(ValueError, match="pip install ml_dtypes"):
        numpy_dtype(DataType.BF16)


def test_a_number_outside_the_enum_is_told() -> None:
    with pytest.raises(ValueError, match="5 is no ACL data type"):
        numpy_dtype(5)
