from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aioascend.cli import bench
from aioascend.cli.bench_options import counts, percentiles, trtexec_shapes
from aioascend.cli.progress import Progress

from .conftest import Result
from .models import double, lookup, sum_and_product

Command = Callable[..., Result]
QUICK = ["--device", "emulator:0", "--iterations", "5", "--warmUp", "0"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return double(tmp_path / "model.onnx")


def test_the_three_base_figures_the_split_and_the_latencies_are_printed(
    aioascend_command: Command, model: Path
) -> None:
    result = aioascend_command("bench", model, *QUICK)

    assert result.code == 0, result.err
    for line in ("Load: ", "First inference: ", "Throughput: ", "Bound by: ", "Count: 5", "Latency (ms): min = "):
        assert f"\n{line}" in result.out
    heading = next(line for line in result.out.splitlines() if line.lstrip().startswith("depth"))
    assert heading.split("  ")[-5:] == ["queue", "copy in", "compute", "copy out", "wake-up"]
    assert result.err == ""  # no progress bar where there is no terminal


def test_several_depths_give_a_table_and_a_recommendation(aioascend_command: Command, model: Path) -> None:
    result = aioascend_command("bench", model, *QUICK, "--depth", "1,2,4", "--json")

    data = json.loads(result.out)
    assert [level["depth"] for level in data["levels"]] == [1, 2, 4]
    assert data["recommended"]["depth"] in (1, 2, 4)
    assert data["recommended"]["reason"]


def test_depth_auto_measures_one_first_and_says_why_it_stopped(aioascend_command: Command, model: Path) -> None:
    result = aioascend_command("bench", model, *QUICK, "--depth", "auto", "--json")

    data = json.loads(result.out)
    depths = [level["depth"] for level in data["levels"]]
    assert depths == list(range(1, len(depths) + 1))
    assert "depth" in data["recommended"]["reason"]


def test_csv_has_a_line_for_each_level(aioascend_command: Command, model: Path) -> None:
    result = aioascend_command("bench", model, *QUICK, "--concurrency", "1:4:x2", "--csv")

    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert [row["Concurrency"] for row in rows] == ["1", "2", "4"]
    assert all(float(row["Inferences/Second"]) > 0 for row in rows)
    assert all(float(row["p99 latency"]) >= float(row["p50 latency"]) for row in rows)


def test_results_go_to_files_beside_the_table(aioascend_command: Command, model: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("r.json", "r.csv", "trace.json")}
    result = aioascend_command(
        "bench", model, *QUICK, "--json", files["r.json"], "--csv", files["r.csv"], "--trace", files["trace.json"]
    )

    assert "Throughput: " in result.out
    assert json.loads(files["r.json"].read_text())["levels"][0]["count"] == 5
    assert files["r.csv"].read_text().startswith("Depth,Concurrency,")
    phases = {event["ph"] for event in json.loads(files["trace.json"].read_text())["traceEvents"]}
    assert phases == {"M", "X", "b", "e", "s", "f"}


def test_a_curve_is_drawn(aioascend_command: Command, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="--plot needs matplotlib, of the extra `plot`")
    result = aioascend_command("bench", model, *QUICK, "--depth", "1,2", "--plot", tmp_path / "curve.png")

    assert result.code == 0, result.err
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_curve_without_matplotlib_is_refused_before_anything_is_measured(
    aioascend_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "available", lambda: False)
    message = aioascend_command("bench", "missing.onnx", "--plot", "curve.png").message

    assert message == "--plot needs matplotlib: pip install 'aioascend[plot]'"


def test_an_emulated_device_takes_the_times_of_a_profile(
    aioascend_command: Command, model: Path, tmp_path: Path
) -> None:
    profile = tmp_path / "card.toml"
    profile.write_text("compute_default = 5e-3\n")
    result = aioascend_command("bench", model, *QUICK, "--profile", profile, "--json")

    compute = json.loads(result.out)["levels"][0]["NPU_compute_time"]
    assert compute["median"] == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize(
    "arguments",
    [["--input", "random"], ["--pure_data_type", "random"], ["--input", "zero"], []],
)
def test_inputs_are_made_up(aioascend_command: Command, tmp_path: Path, arguments: list[str]) -> None:
    model = sum_and_product(tmp_path / "model.onnx")

    assert aioascend_command("bench", model, *QUICK, *arguments).code == 0


def test_inputs_are_read_from_files(aioascend_command: Command, tmp_path: Path) -> None:
    model = lookup(tmp_path / "model.onnx")
    table = tmp_path / "table.npy"
    np.save(table, np.zeros((3, 2), np.float32))
    for index, code in ((2, 0), (7, 2)):
        np.save(tmp_path / "index.npy", np.array(index, np.int64))
        result = aioascend_command(
            "bench", model, *QUICK, "--input", f"index={tmp_path / 'index.npy'}", "--input", table
        )
        assert result.code == code, result.err


def test_open_axes_are_fixed_in_either_notation(aioascend_command: Command, tmp_path: Path) -> None:
    model = double(tmp_path / "open.onnx", ("n", 3))
    for arguments in (["--shape", "x:4,3"], ["--shapes", "x:4x3"], ["--shapes=x:4x3"]):
        assert aioascend_command("bench", model, *QUICK, *arguments).code == 0


def test_the_spellings_of_other_tools_are_understood(aioascend_command: Command, model: Path) -> None:
    spelt = ["--device", "emulator:0", "--loop", "4", "--warmup_count", "2", "--batchsize", "8", "--percentile", "99"]
    result = aioascend_command("bench", model, *spelt, "--instances", "2", "--warmUp", "0", "--json")

    data = json.loads(result.out)
    assert data["batchsize"] == 8
    assert data["streams"] == 2
    [level] = data["levels"]
    assert level["count"] == 4
    assert "percentile(99%)" in level["latency"]
    assert level["throughput_samples"] == pytest.approx(8 * level["throughput"])


@pytest.mark.parametrize("option", ["-m", "--model", "--onnx", "--loadEngine"])
def test_the_model_may_be_given_as_an_option_as_other_tools_have_it(
    aioascend_command: Command, model: Path, option: str
) -> None:
    assert json.loads(aioascend_command("bench", option, model, *QUICK, "--json").out)["model"] == "model.onnx"


@pytest.mark.parametrize("arguments", [[], ["a.onnx", "-m", "b.onnx"]])
def test_the_model_is_given_once(aioascend_command: Command, arguments: list[str]) -> None:
    assert "name the model to measure, once" in aioascend_command("bench", *arguments, *QUICK).message


def test_a_device_that_is_a_number_is_an_npu_as_other_tools_have_it(aioascend_command: Command, model: Path) -> None:
    message = aioascend_command("bench", model, "-d", "3", "-l", "4").message

    assert message.startswith("no pyACL here")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--depth", "0"], "at least 1"),
        (["--depth", "1,1"], "twice"),
        (["--depth", "many"], "many"),
        (["--concurrency", "8:1"], "1:32:x2"),
        (["--concurrency", "1:1000"], "more than 64"),
        (["--rate", "-5"], "greater than 0"),
        (["--rate", "nan"], "greater than 0"),
        (["--duration", "0"], "greater than 0"),
        (["--iterations", "0"], "at least 1"),
        (["--percentiles", "101"], "100"),
        (["--streams", "x"], "whole number"),
        (["--warmUp", "-1"], "--warmUp"),
        (["--shapes", "x:1,3"], "1x3x224x224"),
        (["--distribution", "normal"], "poisson"),
    ],
)
def test_a_bad_value_is_one_line_and_code_2(aioascend_command: Command, arguments: list[str], words: str) -> None:
    message = aioascend_command("bench", "model.onnx", *arguments).message

    assert words in message
    assert "--help" in message


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--rate", "5", "--concurrency", "2"], "one of them"),
        (["--distribution", "poisson"], "--rate"),
        (["--rate", "5", "--depth", "auto"], "--concurrency"),
        (["--shape", "x:1", "--shapes", "x:1"], "one of them"),
        (["--json", "--csv"], "a file"),
        (["--input", "zero", "--pure_data_type", "zero"], "one of them"),
        (["--input", "missing.npy"], "no such file"),
        (["--profile", "missing.toml"], "missing.toml"),
        (["--trace", "nowhere/trace.json"], "no directory"),
        (["--depth", "300", "--device", "emulator:0"], "256"),
    ],
)
def test_options_that_do_not_go_together_are_one_line_and_code_2(
    aioascend_command: Command, model: Path, arguments: list[str], words: str
) -> None:
    assert words in aioascend_command("bench", model, *arguments).message


def test_a_curve_in_an_unknown_format_is_refused(aioascend_command: Command) -> None:
    pytest.importorskip("matplotlib", reason="--plot needs matplotlib, of the extra `plot`")

    assert ".png" in aioascend_command("bench", "model.onnx", "--plot", "curve.docx").message


def test_a_bad_profile_is_refused(aioascend_command: Command, model: Path, tmp_path: Path) -> None:
    profile = tmp_path / "card.toml"
    profile.write_text("speed = 3\n")

    assert "speed" in aioascend_command("bench", model, "--profile", profile).message


def test_a_model_that_there_is_not_is_one_line(aioascend_command: Command) -> None:
    assert "missing.onnx" in aioascend_command("bench", "missing.onnx", *QUICK).message


def test_ranges_have_both_ends() -> None:
    assert counts("1:4") == (1, 2, 3, 4)
    assert counts("1:8:3") == (1, 4, 7)
    assert counts("1:32:x2") == (1, 2, 4, 8, 16, 32)
    assert counts("3:20:x3") == (3, 9)
    assert counts("5") == (5,)
    with pytest.raises(argparse.ArgumentTypeError):
        counts("1:8:x1")


def test_percentiles_are_sorted_and_shapes_may_have_colons_in_names() -> None:
    assert percentiles("99,50,99.9") == (50, 99, 99.9)
    assert trtexec_shapes("a:0:2x3,b:7") == [("a:0", (2, 3)), ("b", (7,))]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_is_taken_away() -> None:
    terminal = _Terminal()
    progress = Progress(terminal)
    progress.show("depth 3, 5 callers", 0.5)

    assert terminal.getvalue().endswith("[##########..........] depth 3, 5 callers")
    progress.clear()
    assert terminal.getvalue().endswith("\r")
    assert terminal.getvalue().rpartition("\r")[0].rpartition("\r")[2].strip() == ""
