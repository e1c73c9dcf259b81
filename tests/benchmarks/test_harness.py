"""That every measure is there and runs; how fast anything is, is not a test's business."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from . import worlds
from .__main__ import ROOT, ROWS, TABLES
from .harness import Outcome, Row, Settings, ratio
from .neighbours import Neighbours, busy_seconds
from .profiles import cpu_by_thread, idle_between, role
from .reporting import notes_as_markdown, rewrite, rows_as_markdown, rows_as_text, tables_as_markdown

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


def rounds(cores: list[float], count: int, quick: bool, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """Rounds with the values 0, 1, 2 ... while others use so many cores."""
    told = iter(cores)
    monkeypatch.setattr(Neighbours, "cores", lambda self: next(told))
    outcome = Outcome()
    for index in Settings(count, quick).measured(outcome):
        outcome.values.append(float(index))
    return outcome


def test_rounds_among_quiet_neighbours_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = rounds([0.01, 0.02, 0.0], 3, False, monkeypatch)
    assert outcome.values == [2, 0, 1]
    assert outcome.notes == {"cores used by others": 0.01}


def test_rounds_that_others_disturbed_are_made_good(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(rounds([0.01, 1.2, 0.5, 0.0, 0.05], 3, False, monkeypatch).values) == [0, 3, 4]


def test_where_others_never_rest_the_least_disturbed_count(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = rounds([1.0, 0.5, 1.5, 0.4], 2, False, monkeypatch)
    assert sorted(outcome.values) == [1, 3]
    assert outcome.notes == {"cores used by others": 0.45}


def test_a_quick_round_is_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rounds([1.0], 1, True, monkeypatch).values == [0]


def test_the_idle_times_of_a_stream_are_between_what_it_did() -> None:
    assert idle_between([(3.0, 4.0), (0.0, 1.0), (1.5, 3.0)]) == [0.5, 0.0]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("aioascend-device-npu:0", "device"),
        ("aioascend-report-emulator:1", "report"),
        ("aioascend-emulator-0-engine", "engine"),
        ("Thread-7", "Thread-7"),
    ],
)
def test_threads_are_told_apart_by_what_they_do_and_not_by_their_device(name: str, expected: str) -> None:
    assert role(threading.Thread(name=name)) == expected
    assert role(threading.main_thread()) == "caller"


async def test_the_processor_time_of_calls_is_found_by_thread() -> None:
    async def work() -> None:
        sum(range(2000))

    async def elsewhere() -> None:
        await asyncio.to_thread(hashlib.pbkdf2_hmac, "sha1", b"a", b"b", 200)

    mine = await cpu_by_thread(work, 1, 200)
    assert max(mine, key=mine.__getitem__) == "caller"
    theirs = await cpu_by_thread(elsewhere, 1, 200)
    assert any(name != "caller" for name in theirs)


STAT = """cpu  100 0 100 900 0 0 0 0 0 0
cpu0 50 1 20 400 30 2 3 4 7 0
cpu1 40 0 10 500 0 0 0 0 0 0
intr 5
"""


def test_the_work_of_cpus_is_all_but_idling_and_waiting_for_disks() -> None:
    assert busy_seconds(STAT, {0}, 100) == 0.80
    assert busy_seconds(STAT, {0, 1}, 100) == 1.30
    assert busy_seconds(STAT, {7}, 100) == 0


def test_our_own_work_is_not_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(0.0, 0.0, 0.0), (2.0, 3.0, 1.0), (3.0, 3.0, 1.5), (3.0, 9.0, 1.5)])
    monkeypatch.setattr(Neighbours, "_now", lambda self: next(times))
    neighbours = Neighbours()
    assert [neighbours.cores() for _ in range(3)] == [1.0, 0.0, 0.0]


def test_a_system_that_does_not_tell_has_no_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    assert Neighbours().cores() == 0


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


def benchmarks(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.slow
def test_measures_run_and_give_json(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = benchmarks("--quick", "--json", result, "own_cost_1_caller", "waiting_callers", "shared_model")

    assert done.returncode == 0, done.stderr
    results = json.loads(result.read_text())["results"]
    assert list(results) == ["own_cost_1_caller", "waiting_callers", "shared_model"]
    for name, found in results.items():
        assert "error" not in found
        assert found.get("values") or found.get("lines")
        assert found["command"] == f"python -m tests.benchmarks {name}"
        assert found["command"] in done.stdout


@pytest.mark.slow
def test_races_are_looked_for_in_the_pipelines_of_measures() -> None:
    names = ["pipeline_1_1_1", "pipeline_19mb", "against_serial", "two_devices", "preparation", "all_three"]
    done = benchmarks("--strict", *names)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"{name}: nothing that hardware forbids, and no race" for name in names]


def test_a_strict_measure_fails_for_what_hardware_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "_strict", True)

    def race() -> None:
        with worlds.device() as emulator:
            acl = emulator.acl
            acl.init()
            acl.rt.set_device(0)
            pointer, _ = acl.rt.malloc(64, 0)
            for _ in range(2):
                stream, _ = acl.rt.create_stream()
                acl.rt.memset_async(pointer, 64, 0, 64, stream)
            acl.rt.synchronize_device()

    with pytest.raises(RuntimeError, match=r"forbids.*race"):
        race()
    monkeypatch.setattr(worlds, "_strict", False)
    race()  # where time is what counts, nobody looks


RESULT = {
    "title": "a pipeline", "unit": "x", "must": 1.0, "aim": 2.0, "better": "higher",
    "profile": "2/8/1 ms", "depth": "3",
    "value": 1.5, "values": [1.0, 1.5, 2.0], "verdict": "must", "notes": {"callers": 5},
    "command": "python -m tests.benchmarks pipeline",
}  # fmt: skip
TABLE = {
    "title": "copies", "profile": "1 MB", "command": "python -m tests.benchmarks copies",
    "lines": [{"what": "pinned", "published": "0.3 ms", "ours": "0.5 ms", "limit": "0.4 ms"}],
}  # fmt: skip
FAILED = {"command": "python -m tests.benchmarks other", "error": "no | memory"}


def test_a_row_is_told_with_its_limits_depth_profile_and_command() -> None:
    heading, row, failed, note = rows_as_text({"pipeline": RESULT, "other": FAILED}).splitlines()

    assert heading.split() == ["measure", "profile", "depth", "must", "aim", "median", "rounds", "command"]
    assert row.split("  ")[0] == "a pipeline"
    for text in ("2/8/1 ms", ">= 1", ">= 2", "1.500 x", "1.000..2.000", "must", RESULT["command"]):
        assert str(text) in row
    assert "failed" in failed
    assert FAILED["error"] in failed
    assert note == "  a pipeline: callers 5"


def test_tables_for_readers_are_markdown() -> None:
    machine = {"python": "3.10.1", "cpus": 2, "numpy": "2.0"}
    assert rows_as_markdown({"pipeline": RESULT, "other": FAILED}, machine).splitlines()[2:] == [
        "| a pipeline | 2/8/1 ms | 3 | >= 1 | >= 2 | 1.500 x | below the aim | `pipeline` |",
        "| other |  |  |  |  | failed | no \\| memory | `other` |",
        "",
        "Medians of 3 rounds; 2 CPUs, CPython 3.10.1, numpy 2.0.",
    ]
    assert tables_as_markdown([("copies", TABLE), ("other", FAILED)]).splitlines() == [
        "Copies (`copies`; profile: 1 MB):",
        "",
        "|  | published | ours | physical limit |",
        "| --- | --- | --- | --- |",
        "| pinned | 0.3 ms | 0.5 ms | 0.4 ms |",
        "",
        "`other` failed: no | memory",
    ]


def test_figures_are_put_between_their_marks_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- benchmarks -->\nold\nolder\n<!-- /benchmarks -->\nafter\n")
    rewrite(path, "benchmarks", "new")

    assert path.read_text() == "before\n<!-- benchmarks -->\nnew\n<!-- /benchmarks -->\nafter\n"
    for text in ("", "<!-- benchmarks -->\n", "<!-- /benchmarks -->\n<!-- benchmarks -->\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match="has no place for the figures"):
            rewrite(path, "benchmarks", "new")
        assert path.read_text() == text


def test_the_texts_of_the_project_have_a_place_for_the_figures() -> None:
    marks = {"README.md": ["benchmarks"], "docs/benchmarks.md": ["published figures", "below the aim"]}
    for name, places in marks.items():
        for mark in places:
            assert (ROOT / name).read_text().count(f"<!-- {mark} -->\n") == 1


def test_what_misses_its_aim_is_told_with_what_was_noted_beside() -> None:
    notes = {"callers": 5, "CPU us, by thread": {"device": 3.5, "caller": 2.0}}
    rows = {"one": {**RESULT, "notes": notes}, "two": {**RESULT, "verdict": "aim"}, "three": FAILED}

    assert notes_as_markdown(rows) == (
        "- `one`, 1.500 x (aim >= 2): callers 5, CPU us, by thread (device 3.5, caller 2.0)"
    )
    assert notes_as_markdown({"two": {**RESULT, "verdict": "aim"}}) == "Every row reaches its aim."


def test_stored_results_are_shown_again_without_measuring(tmp_path: Path) -> None:
    stored = tmp_path / "stored.json"
    stored.write_text(json.dumps({"machine": {}, "results": {"pipeline_2_8_1": RESULT}}))
    done = benchmarks("--from", stored, "--json", tmp_path / "again.json")

    assert done.returncode == 0
    assert done.stderr == ""
    assert "1.500 x" in done.stdout
    assert json.loads((tmp_path / "again.json").read_text())["results"] == {"pipeline_2_8_1": RESULT}


def test_stored_results_that_are_none_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")
    for name in ("missing.json", "other.json"):
        done = benchmarks("--from", tmp_path / name)
        assert done.returncode == 2
        assert f"{name} is not what --json writes" in done.stderr


def test_what_is_only_tried_does_not_become_a_figure() -> None:
    done = benchmarks("--quick", "--readme")

    assert done.returncode == 2
    assert "no figure" in done.stderr


def test_the_documentation_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    for path, text in (("README.md", "README"), ("docs/benchmarks.md", "docs")):
        assert (ROOT / path).is_file(), text
    before = [(ROOT / path).read_bytes() for path in ("README.md", "docs/benchmarks.md")]
    stored = tmp_path / "stored.json"
    every = dict.fromkeys((*ROWS, *TABLES), RESULT)
    for results, said in (
        ({"pipeline_2_8_1": RESULT}, "there is none of pipeline_5_5_5"),
        ({**every, "loop_gap": {**RESULT, "quick": True}}, "what is stored of loop_gap is no figure"),
        ({**every, "loop_gap": {"error": "it broke"}}, "what is stored of loop_gap is no figure"),
    ):
        stored.write_text(json.dumps({"machine": {}, "results": results}))
        done = benchmarks("--from", stored, "--readme")
        assert done.returncode == 2
        assert said in done.stderr
    stored.write_text(json.dumps({"machine": {"cpus": 1000}, "results": every}))
    done = benchmarks("--from", stored, "--readme", "loop_gap")
    assert done.returncode == 2
    assert "was measured on {'cpus': 1000}" in done.stderr
    assert before == [(ROOT / path).read_bytes() for path in ("README.md", "docs/benchmarks.md")]
