"""The table of routes in the documentation is the one in the code."""

from __future__ import annotations

import re
from pathlib import Path

from aioascend.driver.routes import ROUTES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_documented_routes_are_the_real_ones() -> None:
    text = (DOCS / "driver.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `acl\.([\w.]+)` \| `(\w+)` \| (.+?) \|$", text, re.MULTILINE)
    words = {"c": "C", "pyacl": "pyACL"}

    assert rows == [
        (route.pyacl, route.c, words[route.default] if route.slow else "that of the failed call") for route in ROUTES
    ]
