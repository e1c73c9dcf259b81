"""The real offline models and what is expected of them, which lie beside the checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "om"
NAMES = ("a3c_pong.om", "hiai_aipp_dynamic.om", "hiai_relu.om", "modelbox_2d_2048.om", "vae_hh.om")


def path(name: str) -> Path:
    """The path of a real file; skips the test where the files are not there."""
    found = FOLDER / name
    if not found.exists():
        pytest.skip(f"a real offline model is missing: ../shared/om/{name} beside the checkout")
    return found


def expected(name: str) -> dict[str, Any]:
    """What is expected of it."""
    files: dict[str, Any] = json.loads(path("expected.json").read_text())["files"]
    return files[name]
