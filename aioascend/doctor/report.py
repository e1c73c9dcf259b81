"""The rows as a table to paste into a report, and as JSON."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Sequence
from importlib import metadata

from .. import driver
from .checks import Row

__all__ = ["as_expected", "heading", "to_json", "to_text"]

_HEADING = ("fact", "reference", "expected", "seen", "verdict")


def as_expected(rows: Sequence[Row]) -> bool:
    """Whether no fact differs and nothing hung."""
    return not any(row.verdict in ("differs", "hung") for row in rows)


def heading(device: str) -> dict[str, str]:
    """What was examined: the device, its chip, the versions, the C library."""
    name = driver.resolve(device)[0]
    backend = driver.backend(name.kind)
    native = backend.native
    where = native.where or "none"
    try:
        version = metadata.version("aioascend")
    except metadata.PackageNotFoundError:
        version = "not installed"
    return {
        "device": str(name),
        "chip": driver.Driver(backend, str(name)).soc_name() or "unknown",
        "aioascend": version,
        "python": f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()}",
        "C library": f"{where} ({native.reason})" if native.reason else where,
    }


def to_json(device: str, rows: Sequence[Row]) -> str:
    """An object with `examined`, `rows` and `as_expected`."""
    found = {"examined": heading(device), "rows": [row.as_dict() for row in rows], "as_expected": as_expected(rows)}
    return json.dumps(found, indent=2)


def to_text(device: str, rows: Sequence[Row]) -> str:
    """A table in Markdown, laid out to be read as plain text too, with a summary at its end."""
    table: list[tuple[str, ...]] = [_HEADING]
    for index, row in enumerate(rows):
        if index == 0 or rows[index - 1].group != row.group:
            table.append((f"**{row.group}**", "", "", "", ""))
        table.append((row.fact, row.reference, row.expected or "-", row.seen, row.verdict))
    table = [tuple(cell.replace("|", "\\|") for cell in line) for line in table]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEADING))]
    table.insert(1, tuple("-" * width for width in widths))
    lines = [f"- {key}: {value}" for key, value in heading(device).items()]
    lines.append("")
    lines += [f"| {' | '.join(map(str.ljust, line, widths))} |" for line in table]
    counts = Counter(row.verdict for row in rows)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("ok", "differs", "hung", "unavailable"))
    return "\n".join([*lines, "", summary])
