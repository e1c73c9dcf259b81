"""Pool, pipeline, executor, callback and gear programs run unchanged, with right numbers and clean books."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from .conftest import Ended, Runner

Emulate = Callable[..., Ended]
CLEAN = "aioascend: the program left nothing behind and did nothing that hardware forbids\n"
PROGRAMS = sorted(
    path
    for path in Path(__file__).parent.glob("*.py")
    if path.stem not in ("__init__", "conftest", "models") and not path.stem.startswith("test_")
)


@pytest.fixture(scope="module", autouse=True)
def all_started(runner: Runner) -> None:
    for program, model, *rest in (
        ("executor.py", runner.plain),
        ("device_pool.py", runner.plain, 5),
        ("memory_pool.py", runner.plain),
        ("pipeline.py", runner.plain, 5),
        ("callbacks.py", runner.plain, 4, "start_thread"),
        ("callbacks.py", runner.plain, 4, "threading"),
        ("devices_and_streams.py", runner.plain, 3),
        ("gears.py", runner.batches, 1, 3, 2, 4),
        ("gears.py", runner.sizes, "4x6", "5x5", "8x8"),
    ):
        runner.start("--strict", "--devices", "2", program, *map(str, (model, *rest)))


def outputs(emulate: Emulate, *arguments: object) -> list[list[str]]:
    """What a program prints that ends well and leaves nothing."""
    ended = emulate("--strict", "--devices", "2", *arguments)
    assert (ended.code, ended.err) == (0, CLEAN)
    return ended.lines


def affine(x: object) -> list[str]:
    return [str(float(one)) for one in np.ravel(2 * np.asarray(x, np.float64) + 1)]


def test_an_executor_runs_one_model_again_and_again(emulate: Emulate, runner: Runner) -> None:
    assert outputs(emulate, "executor.py", runner.plain) == [affine(start + np.arange(8)) for start in range(3)]


def test_a_device_pool_spreads_requests(emulate: Emulate, runner: Runner) -> None:
    *requests, used = outputs(emulate, "device_pool.py", runner.plain, 5)
    assert [(number, values) for number, _, *values in requests] == [(str(n), affine([n] * 8)) for n in range(5)]
    assert used == ["used", "3", "2"]
    assert sorted(device for _, device, *_ in requests) == ["0", "0", "0", "1", "1"]


def test_a_memory_pool_serves_from_what_it_has(emulate: Emulate, runner: Runner) -> None:
    *sums, counts, memory = outputs(emulate, "memory_pool.py", runner.plain)
    assert sums == [[str(8.0 * (2 * number + 1))] for number in range(6)]
    # Two requests are in flight with two blocks each, two of which the pool keeps.
    assert counts == ["allocated", "10", "reused", "6"]
    assert " ".join(memory) == "same free memory as before"


def test_two_streams_with_events_keep_every_request_apart(emulate: Emulate, runner: Runner) -> None:
    assert outputs(emulate, "pipeline.py", runner.plain, 5) == [affine(n + np.arange(8)) for n in range(5)]


@pytest.mark.parametrize("kind", ["start_thread", "threading"])
def test_callbacks_come_in_order_on_the_report_thread(emulate: Emulate, runner: Runner, kind: str) -> None:
    *requests, thread = outputs(emulate, "callbacks.py", runner.plain, 4, kind)
    assert requests == [[str(n), *affine([n] * 8)] for n in range(4)]
    assert " ".join(thread) == "callbacks ran on the report thread"


def test_every_device_runs_several_streams(emulate: Emulate, runner: Runner) -> None:
    assert outputs(emulate, "devices_and_streams.py", runner.plain, 3) == [
        [str(device), str(number), *affine([10 * device + number] * 8)] for device in range(2) for number in range(3)
    ]


def test_batch_gears_run_in_any_order_and_others_are_refused(emulate: Emulate, runner: Runner) -> None:
    assert [" ".join(line) for line in outputs(emulate, "gears.py", runner.batches, 1, 3, 2, 4)] == [
        "gears 1 2 4",
        "1: (1, 3) 9.0",
        "3: no such gear 145013",
        "2: (2, 3) 18.0",
        "4: (4, 3) 36.0",
    ]


def test_picture_gears_run_in_any_order_and_others_are_refused(emulate: Emulate, runner: Runner) -> None:
    assert [" ".join(line) for line in outputs(emulate, "gears.py", runner.sizes, "4x6", "5x5", "8x8")] == [
        "gears 4x6 8x8",
        "4x6: (1, 3, 4, 6) 216.0",
        "5x5: no such gear 145013",
        "8x8: (1, 3, 8, 8) 576.0",
    ]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_programs_use_acl_numpy_and_the_standard_library_alone(program: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
    assert "acl" in imported
    assert imported - sys.stdlib_module_names <= {"acl", "numpy"}
