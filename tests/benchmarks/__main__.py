"""All side-by-side measures: `python -m tests.benchmarks`, with the extra `bench` installed.

Each measure runs in a process of its own, five rounds, and gives the median. Rows have a value that they must reach and
one that is aimed at; tables set figures that were published for CANN beside ours on a device with the same stage times.
With --strict nothing is timed: everything runs once, briefly, on emulators that look for races and forbidden calls.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from .harness import Line, Outcome, Row, Settings
from .reporting import notes_as_markdown, rewrite, rows_as_markdown, rows_as_text, table_as_text, tables_as_markdown
from .worlds import be_strict, pinned_to

ROWS = (
    "pipeline_2_8_1",
    "pipeline_5_5_5",
    "pipeline_1_1_1",
    "pipeline_19mb",
    "against_serial",
    "two_devices",
    "unloaded_latency",
    "own_cost_64_callers",
    "own_cost_1_caller",
    "own_cost_busy_thread",
    "small_model",
    "model_1ms",
    "model_8ms",
    "loop_gap",
    "memory_growth",
    "waiting_callers",
)
TABLES = (
    "serial_or_pipelined",
    "allocation",
    "pinned_copies",
    "all_three",
    "preparation",
    "shared_model",
    "device_input",
    "leased_results",
)
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 900


def main() -> int:
    """Measure what was named, or everything; exit code 1 when a row fails, or misses what it must reach."""
    options = _options()
    quick = options.quick or options.strict
    settings = Settings(1 if quick else options.rounds, quick)
    if options.child:
        if options.strict:
            be_strict()
        print(json.dumps(_measure(options.names[0], settings, options.cpus)))
        return 0
    stored = options.stored or {"machine": _machine(), "results": {}}
    results: dict[str, dict[str, Any]] = stored["results"]
    names = options.names or ([] if options.stored else [*ROWS, *TABLES])
    for name in names:
        started = time.monotonic()
        print(f"{name} ...", end="", file=sys.stderr, flush=True)
        results[name] = _in_child(name, options)
        if quick:
            results[name]["quick"] = True  # no figure
        print(f" {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        if options.json:  # after each of them: who stops here has the ones before
            Path(options.json).write_text(json.dumps(stored, indent=2) + "\n")
    failed = [name for name in names if results[name].get("error")]
    if options.strict:
        for name in names:
            print(f"{name}: {results[name].get('error', 'nothing that hardware forbids, and no race')}")
        return 1 if failed else 0
    results = {name: results[name] for name in (*ROWS, *TABLES) if name in results}
    rows = {name: result for name, result in results.items() if name in ROWS}
    print(rows_as_text(rows))
    tables = [(name, result) for name, result in results.items() if name in TABLES]
    for _, result in tables:
        print(table_as_text(result))
    if options.json:
        Path(options.json).write_text(json.dumps(stored, indent=2) + "\n")
    if options.readme:
        rewrite(ROOT / "README.md", "benchmarks", rows_as_markdown(rows, stored["machine"]))
        rewrite(ROOT / "docs" / "benchmarks.md", "published figures", tables_as_markdown(tables))
        rewrite(ROOT / "docs" / "benchmarks.md", "below the aim", notes_as_markdown(rows))
    missed = [name for name in names if results[name].get("verdict") == "missed"]
    return 1 if failed or (missed and not options.quick) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join((*ROWS, *TABLES))}")
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds the median is of (5)")
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it runs, not how fast")
    parser.add_argument("--cpus", type=_cpus, default=[], metavar="0,1", help="CPUs that every measure is pinned to")
    parser.add_argument("--strict", action="store_true", help="one short round in strict emulators that find races")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    parser.add_argument(
        "--from",
        dest="stored",
        type=_stored,
        metavar="FILE",
        help="begin with the results in this JSON; measure what is named anew",
    )
    parser.add_argument("--readme", action="store_true", help="write the figures into README.md and docs/benchmarks.md")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in (*ROWS, *TABLES)]
    if unknown:
        parser.error(f"no such measure: {', '.join(unknown)}")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.readme and (options.quick or options.strict):
        parser.error("--readme: what --quick and --strict give is no figure")
    if options.readme:
        _check_complete(parser, options)
    return options


def _check_complete(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """The documentation is written as a whole: refuse what would leave gaps in it, or mix what does not compare."""
    anew = set(options.names or ([] if options.stored else [*ROWS, *TABLES]))
    stored = options.stored or {"machine": _machine(), "results": {}}
    kept = {name: result for name, result in stored["results"].items() if name not in anew}
    missing = [name for name in (*ROWS, *TABLES) if name not in anew and name not in kept]
    if missing:
        parser.error(
            f"--readme wants every measure, and there is none of {', '.join(missing)}: name them, or use --from"
        )
    quick = [name for name, result in kept.items() if result.get("quick") or result.get("error")]
    if quick:
        parser.error(f"--readme: what is stored of {', '.join(quick)} is no figure: name them to measure them anew")
    if anew and kept and stored["machine"] != _machine():
        parser.error(f"--readme: what is stored was measured on {stored['machine']}, and this is {_machine()}")


def _cpus(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _stored(path: str) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(Path(path).read_text())
        return {"machine": stored["machine"], "results": stored["results"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{path} is not what --json writes: {error}") from None


def _in_child(name: str, options: argparse.Namespace) -> dict[str, Any]:
    shown = f"python -m tests.benchmarks {name}"
    command = [sys.executable, "-m", "tests.benchmarks", name, "--child", "--rounds", str(options.rounds)]
    command += [f"--{option}" for option in ("quick", "strict") if getattr(options, option)]
    if options.cpus:
        command += ["--cpus", ",".join(map(str, options.cpus))]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"command": shown, "error": f"not done after {LIMIT_S} s"}
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        return {"command": shown, "error": why}
    result: dict[str, Any] = {"command": shown}
    result |= json.loads(done.stdout.rpartition("\n{")[2] if "\n{" in done.stdout else done.stdout)
    return result


def _measure(name: str, settings: Settings, cpus: list[int]) -> dict[str, Any]:
    pinned_to(cpus)
    if name in TABLES:
        table = importlib.import_module(f"{__package__}.tables.{name}")
        lines: list[Line] = table.measure(settings)
        return {"title": table.TITLE, "profile": table.PROFILE, "lines": [asdict(line) for line in lines]}
    module = importlib.import_module(f"{__package__}.rows.{name}")
    row: Row = module.ROW
    outcome: Outcome = module.measure(settings)
    return {
        **asdict(row),
        "value": outcome.median,
        "values": outcome.values,
        "verdict": row.verdict(outcome.median),
        "notes": outcome.notes,
    }


def _machine() -> dict[str, Any]:
    packages = ("numpy", "onnxruntime", "openvino", "uvloop")
    return {
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        **{name: metadata.version(name) for name in packages if _installed(name)},
    }


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
