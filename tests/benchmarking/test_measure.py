from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import aioascend
from aioascend.benchmarking import Load, Plan, measure
from aioascend.benchmarking.plot import curves
from aioascend.benchmarking.report import as_csv, as_data, as_text
from aioascend.emulator import Profile

from ..kit import add, out_of_bounds

pytestmark = pytest.mark.usefixtures("emulator")

LOAD = Load(iterations=20, warmup=0.0)


def zeros(specs: Sequence[aioascend.TensorSpec]) -> dict[str, np.ndarray]:
    return {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "add.onnx"
    path.write_bytes(add(1.0))
    return str(path)


async def test_every_depth_is_measured_under_every_load(model: str) -> None:
    seen = []
    plan = Plan(model, zeros, "emulator:0", depths=(1, 3), concurrency=(1, 4), load=LOAD)
    result = await measure(plan, lambda what, share: seen.append((what, share)))

    assert [(level.depth, level.concurrency, level.count) for level in result.levels] == [
        (1, 1, 20), (1, 4, 20), (3, 1, 20), (3, 4, 20),
    ]  # fmt: skip
    assert result.device == "emulator:0"
    assert result.device_open > 0
    for level in result.levels:
        assert level.load_time > 0
        assert level.first_inference > 0
        assert level.throughput == 20 / level.wall
        assert set(level.stages) == {"queue", "copy_in", "compute", "copy_out", "wake_up", "total"}
        assert set(level.streams) == set(level.busy) == {"h2d", "compute", "d2h"}
        assert level.bound_by
    assert result.choice is not None
    assert result.best.depth == result.choice.depth
    assert any("loading" in what for what, _ in seen)
    assert all(0 <= share <= 1 for _, share in seen)


@pytest.mark.emulated(profile=Profile(copy_latency=2e-3, compute_default=2e-3))
async def test_the_depth_is_found_that_keeps_the_streams_busy(model: str) -> None:
    result = await measure(Plan(model, zeros, "emulator:0", depths="auto", load=Load(iterations=60, warmup=0.0)))

    assert result.choice is not None
    assert [level.depth for level in result.levels][:2] == [1, 2]
    assert 2 <= result.choice.depth <= 5
    assert f"depth {result.choice.depth}" in result.choice.reason


@pytest.mark.emulated(profile=Profile(compute_default=5e-3))
async def test_what_limits_the_throughput_is_told(model: str) -> None:
    result = await measure(Plan(model, zeros, "emulator:0", load=LOAD))

    [level] = result.levels
    assert level.busy["compute"] > 0.5
    assert "compute" in level.bound_by


async def test_a_rate_is_measured_from_the_scheduled_send(model: str) -> None:
    result = await measure(Plan(model, zeros, "emulator:0", rates=(300.0,), distribution="poisson", load=LOAD))

    [level] = result.levels
    assert level.concurrency is None
    assert level.send_delay is not None
    assert level.count == 20
    assert result.choice is None


async def test_a_failing_model_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "gather.onnx"
    path.write_bytes(out_of_bounds())
    plan = Plan(str(path), lambda specs: {"index": np.array([9], np.int64)}, "emulator:0", load=LOAD)

    with pytest.raises(aioascend.ExecutionFailed):
        await measure(plan)


async def test_the_first_load_is_the_load_time_whatever_depth_is_the_best(model: str) -> None:
    result = await measure(Plan(model, zeros, "emulator:0", depths=(2, 1), load=LOAD))

    first = result.levels[0]
    assert (result.load_time, result.first_inference) == (first.load_time, first.first_inference)
    data = as_data(result)
    assert data["load_time"] == first.load_time * 1e3
    assert data["first_inference"] == first.first_inference * 1e3


async def test_a_picture_has_a_curve_for_every_load(model: str) -> None:
    several = await measure(Plan(model, zeros, "emulator:0", depths=(1, 2), concurrency=(1, 3), load=LOAD))
    title, groups = curves(several)
    assert title == "depth"
    assert {name: [x for x, _ in points] for name, points in groups.items()} == {
        ", 1 caller": [1, 2],
        ", 3 callers": [1, 2],
    }
    assert [level.concurrency for _, level in groups[", 3 callers"]] == [3, 3]

    one = await measure(Plan(model, zeros, "emulator:0", depths=(1, 2), load=LOAD))
    title, groups = curves(one)  # as many callers as each depth needs: one curve
    assert (title, [x for x, _ in groups[""]]) == ("depth", [1, 2])

    rates = await measure(Plan(model, zeros, "emulator:0", rates=(200.0, 400.0), load=LOAD))
    title, groups = curves(rates)
    assert (title, [x for x, _ in groups[""]]) == ("requests a second", [200, 400])

    callers = await measure(Plan(model, zeros, "emulator:0", concurrency=(1, 2), load=LOAD))
    title, groups = curves(callers)
    assert (title, [x for x, _ in groups[""]]) == ("callers", [1, 2])


async def test_the_reports_agree_with_the_result(model: str) -> None:
    plan = Plan(model, zeros, "emulator:0", depths=(1, 2), load=LOAD, percentiles=(50, 99.9), instances=2)
    result = await measure(plan)

    data = json.loads(json.dumps(as_data(result, batch=4)))
    assert data["throughput"] == result.best.throughput
    assert data["levels"][0]["throughput_samples"] == result.levels[0].throughput * 4
    assert data["levels"][1]["latency"]["percentile(99.9%)"] == result.levels[1].latency.percentiles[99.9] * 1e3
    assert data["levels"][1]["NPU_compute_time"]["mean"] == result.levels[1].streams["compute"].mean * 1e3
    heading, *rows = [line.split(",") for line in as_csv(result).splitlines()]
    assert [dict(zip(heading, row, strict=True))["Depth"] for row in rows] == ["1", "2"]
    assert "p99.9 latency" in heading
    text = as_text(result, batch=4)
    for words in ("Load:", "First inference:", "Throughput:", "Recommended: depth", "H2D_latency (ms): min ="):
        assert words in text
