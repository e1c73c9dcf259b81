from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Result
from .models import double, sum_and_product

Command = Callable[..., Result]


def test_inspect_shows_inputs_and_outputs(aioascend_command: Command, tmp_path: Path) -> None:
    model = sum_and_product(tmp_path / "model.onnx")

    result = aioascend_command("inspect", model)

    assert result.code == 0, result.err
    title, inputs, outputs = result.out.split("\n\n")
    assert title == f"{model} on emulator:0"
    assert [line.split() for line in inputs.splitlines()] == [
        ["inputs"],
        ["name", "dtype", "shape", "bytes"],
        ["left", "int64", "4", "32"],
        ["right", "int64", "scalar", "8"],
    ]
    assert [line.split() for line in outputs.splitlines()] == [
        ["outputs"],
        ["name", "dtype", "shape", "bytes"],
        ["sum", "int64", "4", "32"],
        ["product", "int64", "4", "32"],
    ]


def test_inspect_gives_json(aioascend_command: Command, tmp_path: Path) -> None:
    model = double(tmp_path / "model.onnx", ("n", 3))

    result = aioascend_command("inspect", model, "--shape", "x:5,3", "--json")

    assert result.code == 0, result.err
    assert json.loads(result.out) == {
        "model": str(model),
        "device": "emulator:0",
        "inputs": [{"name": "x", "dtype": "float32", "shape": [5, 3], "bytes": 60}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [5, 3], "bytes": 60}],
    }


def test_inspect_of_a_missing_model_is_one_line(aioascend_command: Command, tmp_path: Path) -> None:
    assert "missing.onnx" in aioascend_command("inspect", tmp_path / "missing.onnx").message


def test_devices_lists_the_emulator(aioascend_command: Command) -> None:
    result = aioascend_command("devices")

    assert result.code == 0, result.err
    heading, *rows = result.out.splitlines()
    assert heading.split() == ["name", "kind", "chip", "free", "memory"]
    assert any(row.split()[:2] == ["emulator:0", "emulator"] for row in rows)


def test_devices_gives_json(aioascend_command: Command) -> None:
    result = aioascend_command("devices", "--json")

    assert result.code == 0, result.err
    devices = json.loads(result.out)
    assert {"name", "kind", "soc_name", "memory_total", "memory_free"} <= devices[-1].keys()


@pytest.fixture
def broken_pyacl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A pyACL that fails while it is imported; the reason it gives."""
    reason = "libascendcl.so: cannot open shared object file"
    (tmp_path / "acl.py").write_text(f"raise ImportError({reason!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    return reason


def test_a_pyacl_that_fails_to_import_is_the_error_of_what_needs_it(
    aioascend_command: Command, tmp_path: Path, broken_pyacl: str
) -> None:
    assert broken_pyacl in aioascend_command("inspect", double(tmp_path / "model.onnx")).message


def test_devices_warns_of_a_pyacl_that_fails_to_import_and_lists_the_rest(
    aioascend_command: Command, broken_pyacl: str
) -> None:
    result = aioascend_command("devices")

    assert result.code == 0, result.err
    assert "emulator:0" in result.out
    assert result.err.startswith("aioascend: warning: ")
    assert broken_pyacl in result.err
    assert result.err.count("\n") == 1
