"""Reading the pyACL reference text that lies beside the checkout, for tests that compare our tables with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "pyacl.md"


def section(number: int) -> str:
    """Give the text of one numbered section; skip the calling test where the reference is not there."""
    if not REFERENCE.exists():
        pytest.skip("the pyACL reference is missing: ../shared/reference/pyacl.md beside the checkout")
    parts = re.split(r"^## (\d+)\. .*$", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    texts = dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))
    return texts[number]


def table_rows(text: str) -> list[list[str]]:
    """Give the cells of every table row, headings and rulers left out."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if "|" in line]
    return [row for row in rows if row[0] not in ("Code", "Call", "ACL", "C function") and set(row[0]) - set("-: ")]
