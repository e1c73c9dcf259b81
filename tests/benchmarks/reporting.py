"""Results as text for a terminal, and as the tables of README and docs, which are never typed by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["notes_as_markdown", "rewrite", "rows_as_markdown", "rows_as_text", "table_as_text", "tables_as_markdown"]

Result = Mapping[str, Any]
_SIGNS = {"higher": ">=", "lower": "<="}
_VERDICTS = {"aim": "", "must": "below the aim", "missed": "missed"}


def rows_as_text(results: Mapping[str, Result]) -> str:
    """A line for every row, and what was noted beside."""
    table = [["measure", "profile", "depth", "must", "aim", "median", "rounds", "", "command"]]
    for name, result in results.items():
        if "error" in result:
            table.append([name, "", "", "", "", "failed", result["error"], "", result["command"]])
            continue
        spread = f"{min(result['values']):.3f}..{max(result['values']):.3f}"
        table.append(
            [
                result["title"],
                result["profile"],
                result["depth"],
                *_limits(result),
                _value(result),
                spread,
                result["verdict"],
                result["command"],
            ]
        )
    text = _columns(table) if len(table) > 1 else ""
    notes = [f"{result['title']}: {_noted(result)}" for result in results.values() if result.get("notes")]
    return "\n".join([text, *(f"  {note}" for note in notes)])


def table_as_text(result: Result) -> str:
    """A table of published figures."""
    if "error" in result:
        return f"\nfailed: {result['error']}"
    rows = [["", "published", "ours", "physical limit"], *_lines(result)]
    return f"\n{result['title']} (profile: {result['profile']}; {result['command']})\n{_columns(rows)}"


def rows_as_markdown(results: Mapping[str, Result], machine: Mapping[str, Any]) -> str:
    """The rows as a table (measure, must, aim, value and command), and what they were measured on and how often."""
    heading = ["measure", "profile", "depth", "must", "aim", "value", "", "`python -m tests.benchmarks` ..."]
    rows = []
    for name, result in results.items():
        if "error" in result:
            rows.append([name, "", "", "", "", "failed", result["error"], f"`{name}`"])
            continue
        verdict = _VERDICTS[result["verdict"]]
        rows.append(
            [
                result["title"],
                result["profile"],
                result["depth"],
                *_limits(result),
                _value(result),
                verdict,
                f"`{name}`",
            ]
        )
    counts = {len(result["values"]) for result in results.values() if "values" in result}
    rounds = " or ".join(map(str, sorted(counts)))
    versions = ", ".join(f"{name} {version}" for name, version in machine.items() if name not in ("cpus", "python"))
    about = f"Medians of {rounds} rounds; {machine['cpus']} CPUs, CPython {machine['python']}, {versions}."
    return f"{_markdown(heading, rows)}\n\n{about}"


def tables_as_markdown(results: Iterable[tuple[str, Result]]) -> str:
    """The tables of published figures, one after the other."""
    parts = []
    for name, result in results:
        if "error" in result:
            parts.append(f"`{name}` failed: {result['error']}")
            continue
        title = f"{result['title'][0].upper()}{result['title'][1:]} (`{name}`; profile: {result['profile']}):"
        parts.append(f"{title}\n\n{_markdown(['', 'published', 'ours', 'physical limit'], _lines(result))}")
    return "\n\n".join(parts)


def notes_as_markdown(results: Mapping[str, Result]) -> str:
    """What was noted beside the rows that do not reach their aim."""
    lines = [
        f"- `{name}`, {_value(result)} (aim {_limits(result)[1]}): {_noted(result)}"
        for name, result in results.items()
        if result.get("verdict") in ("must", "missed")
    ]
    return "\n".join(lines) or "Every row reaches its aim."


def rewrite(path: Path, name: str, text: str) -> None:
    """Put `text` between the lines ``<!-- name -->`` and ``<!-- /name -->`` of a file.

    Raises `ValueError` where the two are not there, once and in this order.
    """
    content = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, found, rest = content.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed or begin in after:
        raise ValueError(f"{path} has no place for the figures: wanted the lines {begin.strip()} and {end}, once")
    path.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")


def _limits(result: Result) -> tuple[str, str]:
    sign = _SIGNS[result["better"]]
    return f"{sign} {result['must']:g}", f"{sign} {result['aim']:g}"


def _value(result: Result) -> str:
    return f"{result['value']:.3f} {result['unit']}"


def _noted(result: Result) -> str:
    return ", ".join(f"{key} {_plain(value)}" for key, value in result["notes"].items())


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{key} {one}" for key, one in value.items()) + ")"
    return str(value)


def _lines(result: Result) -> list[list[str]]:
    return [[line[key] for key in ("what", "published", "ours", "limit")] for line in result["lines"]]


def _columns(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _markdown(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
