"""That every measure is there and runs; how fast anything is, is not a test's business."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .__main__ import ROOT, ROWS, TABLES
from .harness import Row, ratio

HIGHER = Row("a", "x", must=1.0, aim=2.0, better="higher", profile="none", depth="3")
LOWER = Row("b", "ms", must=2.0, aim=1.0, better="lower", profile="none", depth="3")


@pytest.mark.parametrize(
    "row, value, verdict",
    [
        (HIGHER, 2.0, "aim"), (HIGHER, 1.9, "must"), (HIGHER, 1.0, "must"), (HIGHER, 0.9, "missed"),
        (LOWER, 1.0, "aim"), (LOWER, 1.1, "must"), (LOWER, 2.0, "must"), (LOWER, 2.1, "missed"),
    ],
)  # fmt: skip
def test_a_value_reaches_its_aim_or_what_it_must_or_misses(row: Row, value: float, verdict: str) -> None:
    assert row.verdict(value) == verdict


def test_a_ratio_is_the_median_of_pairs() -> None:
    assert ratio([2.0, 30.0, 4.0], [1.0, 10.0, 1.0]) == 3.0


@pytest.mark.parametrize("name", ROWS)
def test_every_row_says_what_it_must_reach(name: str) -> None:
    row = importlib.import_module(f"{__package__}.rows.{name}").ROW

    assert row.verdict(row.aim) == "aim"
    assert row.verdict(row.must) in ("must", "aim")
    assert row.profile
    assert row.depth


def test_every_file_is_a_measure_of_the_command_or_shared_by_some() -> None:
    here = Path(__file__).parent
    for folder, names in (("rows", ROWS), ("tables", TABLES)):
        for path in (here / folder).glob("*.py"):
            measures = "\ndef measure(" in path.read_text()
            assert measures == (path.stem in names), path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own_cost_1_caller", "waiting_callers", "against_serial", "shared_model"])
def test_a_measure_runs_and_gives_json(name: str, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--quick", "--json", str(result), name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    [found] = json.loads(result.read_text())["results"].values()
    assert "error" not in found
    assert found.get("values") or found.get("lines")
