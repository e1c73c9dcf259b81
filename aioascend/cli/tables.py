"""Plain text tables, and the words for shapes and sizes in them."""

from __future__ import annotations

from collections.abc import Sequence


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> str:
    """Lay out a heading and rows in columns; those named in `right` are set flush right."""
    shown = [[printable(cell) for cell in row] for row in (heading, *rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(heading))]
    lines = []
    for row in shown:
        cells = [
            cell.rjust(width) if title in right else cell.ljust(width)
            for cell, width, title in zip(row, widths, heading, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def shape_text(shape: Sequence[int]) -> str:
    """Write a shape as `--shape` takes it: `1,3,224,224`; `scalar` for a single number."""
    return ",".join(map(str, shape)) if shape else "scalar"


def memory_text(nbytes: int | None) -> str:
    """Write an amount of memory in GiB; `-` where it is not known."""
    return "-" if nbytes is None else f"{nbytes / 2**30:.1f} GiB"


def printable(text: str) -> str:
    """Text of a file, or a path, without what would move a terminal's cursor or colour it."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
