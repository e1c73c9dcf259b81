"""The table of docs/reliability.md and the scenario files are about the same things."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"
ROW = re.compile(r"\| (R\d\d) \|[^|]+\|[^|]+\| \[test\]\((?P<path>[^)]+)\) \|")


def test_every_row_has_its_test_and_every_scenario_its_row() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| R")]
    matches = [ROW.fullmatch(row) for row in rows]
    assert None not in matches
    found = {match[1]: (PAGE.parent / match["path"]).resolve() for match in matches if match is not None}
    assert list(found) == sorted(found)
    assert len(found) == len(rows)
    for number, path in found.items():
        assert path.is_file(), path
        assert path.name.startswith(f"test_{number.lower()}_")
        assert (path.read_text().split('"""')[1]).startswith(f"{number}: ")
    assert sorted(found.values()) == sorted(HERE.glob("test_r[0-9][0-9]_*.py"))
