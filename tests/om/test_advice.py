"""What the summary says of weights, shapes, formats, alignment and pictures."""

from __future__ import annotations

import pytest

import aioascend
from aioascend import om

from . import writer
from .writer import data, net_output, operator, simple


def topics(file: bytes) -> dict[str, om.Advice]:
    return {one.topic: one for one in aioascend.inspect(file).advice}


def test_heavy_weights_are_what_loading_takes() -> None:
    told = topics(simple(weights=bytes(120_000_000)))["load time"]
    assert told.finding == "weights are 114.4 MiB, 100% of the file: copying them takes 10 ms at 12 GB/s (PCIe 3.0 x16)"
    assert "load it once" in told.advice


def test_gears_are_advised_against_only_where_there_are_some() -> None:
    rest = {"atc_cmdline": "x" * 40_000_000}
    told = topics(simple(weights=bytes(20_000_000), attrs=rest))["load time"]
    assert "most of the file is operators" in told.advice
    assert "gears" not in told.advice


def test_light_weights_are_not() -> None:
    assert topics(simple())["load time"].advice == ""


def test_gears_cost_and_a_fixed_shape_does_not() -> None:
    assert topics(simple())["shapes"].finding.startswith("static")
    told = topics(writer.geared("batch"))["shapes"]
    assert told.finding.startswith("3 batch gears: tasks and a memory plan for each, 2 tasks in all")
    assert "fixed --input_shape" in told.advice
    assert topics(simple(unknown=1))["shapes"].finding.startswith("open shapes")


def test_conversions_are_counted() -> None:
    assert "formats" not in topics(simple())
    x = data("x", 0, writer.FLOAT, [4], size=16)
    told = topics(simple([x, operator("c", "Cast"), operator("t", "TransData"), net_output([], [])]))["formats"]
    assert told.finding.startswith("1 TransData and 1 Cast of 4 operators")
    assert '--input_fp16_nodes="x"' in told.advice


def test_a_cast_is_saved_only_where_there_is_one() -> None:
    inputs = [data(f"x{index}", index, writer.FLOAT, [4], size=16) for index in range(5)]
    told = topics(simple([*inputs, operator("t", "TransData"), net_output([], [])]))["formats"]
    assert told.advice == '--input_fp16_nodes="x0;x1;x2;x3;..." halves the copies in; for pictures, AIPP takes uint8'


def test_one_of_a_thing_is_one() -> None:
    assert "1 model in the file" in topics(simple(unknown=1))["shapes"].finding


def test_sizes_that_are_not_aligned_are_told() -> None:
    assert topics(simple())["alignment"].finding == "no multiple of 64 bytes: conv:0:y (10 bytes)"


def test_pictures_prepared_in_the_model_must_not_be_before() -> None:
    x = data("x", 0, writer.UINT8, [1, 8, 8, 3], "NHWC", 192, {"_data_related_aipp_mode": "static_aipp"})
    told = topics(simple([x, net_output([], [])]))["pre-processing"]
    assert told.finding == "static AIPP prepares pictures inside the model: x (uint8 NHWC)"
    assert "normalised" in told.advice


@pytest.mark.parametrize(
    "compiled, device, verdict",
    [
        ("Ascend310P3", "Ascend310P3", "same"),
        ("ascend310p3", "Ascend310P3", "same"),
        ("Ascend310", "Ascend310P3", "different"),
        ("Ascend310B4", "Ascend310", "different"),
        ("Ascend310B1", "Ascend310P3", "different"),
        ("Ascend310P", "Ascend310P3", "unsure"),
        ("Ascend310P1", "Ascend310P3", "unsure"),
        ("Ascend710", "Ascend310P3", "unsure"),
        ("Ascend910B", "Ascend910B2", "unsure"),
        ("Ascend910B4", "Ascend910B2", "unsure"),
        ("Ascend910B", "Ascend910A", "unsure"),
        ("Ascend910", "Ascend910B2", "different"),
        ("Ascend910ProA", "Ascend910", "unsure"),
        ("Ascend910B1", "Ascend910_9382", "unsure"),
        ("Ascend910", "Ascend910_9382", "different"),
        ("Ascend310P3", "Ascend910B4", "different"),
        ("", "Ascend310", "unsure"),
        ("Ascend310", "", "unsure"),
        ("Hi3796CV300ES", "Ascend310", "unsure"),
    ],
)
def test_chips_are_told_apart_by_family_and_never_on_a_guess(compiled: str, device: str, verdict: str) -> None:
    assert om.compare_chips(compiled, device) == verdict
