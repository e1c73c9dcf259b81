"""All side-by-side measures: `python -m tests.benchmarks`, with the extra `bench` installed.

Each measure runs in a process of its own, five rounds, and gives the median. Rows have a value that they must reach and
one that is aimed at; tables set figures that were published for CANN beside ours on a device with the same stage times.
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
from .worlds import pinned_to

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
TABLES = ("serial_or_pipelined", "allocation", "pinned_copies", "all_three", "preparation", "shared_model")
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 900


def main() -> int:
    """Measure what was named, or everything; exit code 1 when a row misses what it must reach."""
    options = _options()
    settings = Settings(1 if options.quick else options.rounds, options.quick)
    if options.child:
        print(json.dumps(_measure(options.names[0], settings, options.cpus)))
        return 0
    names = options.names or [*ROWS, *TABLES]
    results = {}
    for name in names:
        started = time.monotonic()
        print(f"{name} ...", end="", file=sys.stderr, flush=True)
        results[name] = _in_child(name, options)
        print(f" {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    print(_rows({name: result for name, result in results.items() if name in ROWS}))
    for name, result in results.items():
        if name in TABLES:
            print(_table(result))
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": _machine(), "results": results}, indent=2) + "\n")
    failed = [name for name, result in results.items() if result.get("error") or result.get("verdict") == "missed"]
    return 1 if failed and not options.quick else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join((*ROWS, *TABLES))}")
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds the median is of (5)")
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it runs, not how fast")
    parser.add_argument("--cpus", type=_cpus, default=[], metavar="0,1", help="CPUs that every measure is pinned to")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in (*ROWS, *TABLES)]
    if unknown:
        parser.error(f"no such measure: {', '.join(unknown)}")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def _cpus(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _in_child(name: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks", name, "--child", "--rounds", str(options.rounds)]
    if options.quick:
        command.append("--quick")
    if options.cpus:
        command += ["--cpus", ",".join(map(str, options.cpus))]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {LIMIT_S} s"}
    if done.returncode:
        return {"error": done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"}
    result: dict[str, Any] = json.loads(done.stdout.rpartition("\n{")[2] if "\n{" in done.stdout else done.stdout)
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


def _rows(results: dict[str, dict[str, Any]]) -> str:
    heading = ["measure", "profile", "depth", "must", "aim", "median", "rounds", ""]
    table = [heading]
    for name, result in results.items():
        if "error" in result:
            table.append([name, "", "", "", "", "failed", result["error"], ""])
            continue
        sign = {"higher": ">=", "lower": "<="}[result["better"]]
        spread = f"{min(result['values']):.3f}..{max(result['values']):.3f}"
        table.append(
            [
                result["title"],
                result["profile"],
                result["depth"],
                f"{sign} {result['must']:g}",
                f"{sign} {result['aim']:g}",
                f"{result['value']:.3f} {result['unit']}",
                spread,
                result["verdict"],
            ]
        )
    text = _columns(table) if len(table) > 1 else ""
    notes = [
        f"{result['title']}: {', '.join(f'{key} {value}' for key, value in result['notes'].items())}"
        for result in results.values()
        if result.get("notes")
    ]
    return "\n".join([text, *(f"  {note}" for note in notes)])


def _table(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"\nfailed: {result['error']}"
    rows = [["", "published", "ours", "physical limit"]]
    rows += [[line["what"], line["published"], line["ours"], line["limit"]] for line in result["lines"]]
    return f"\n{result['title']} (profile: {result['profile']})\n{_columns(rows)}"


def _columns(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


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
