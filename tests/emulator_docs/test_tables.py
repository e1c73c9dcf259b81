"""The tables of docs/emulator.md say what there is, no more and no less."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from aioascend.cli.emulate import FOUND_SOMETHING
from aioascend.emulator import Config, Emulator, Profile, config, faults, gears

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "emulator.md").read_text()


def section(title: str) -> str:
    """The text under a heading, without those below it."""
    level, _, _ = title.partition(" ")
    _, found, rest = PAGE.partition(f"\n{title}\n")
    assert found, title
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_the_functions_are_those_of_the_module() -> None:
    exported = [
        f"{name}.{function}"
        for name, module in Emulator().modules.items()
        for function, value in vars(module).items()
        if callable(value) and not function.startswith("__")
    ]
    documented = first_cells(section("## Function by function"))
    assert sorted(documented) == sorted(exported)


def test_every_function_says_what_it_does_and_where_the_reference_has_it() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \| (.*) \|$", section("## Function by function"), re.MULTILINE)
    assert len(rows) == len(first_cells(section("## Function by function")))
    for name, text, reference in rows:
        assert text.endswith("."), name
        assert len(text.split()) > 1, name
        assert re.fullmatch(r"§\d+|usage", reference), name


def test_the_keys_of_a_profile_are_those_it_has() -> None:
    assert first_cells(section("### Profiles")) == [field.name for field in fields(Profile)]


def test_the_example_of_a_profile_is_one(tmp_path: Path) -> None:
    tomllib = pytest.importorskip("tomllib")
    example = re.search(r"```toml\n(.*?)```", section("### Profiles"), re.DOTALL)
    assert example is not None
    assert Profile.from_dict(tomllib.loads(example[1])).name == "card"


def test_every_fault_of_the_table_is_understood() -> None:
    for text in first_cells(section("### Faults")):
        Emulator().faults.parse(text)
    assert all(f"`{kind}`" in section("### Faults") for kind in faults.KINDS)


def test_the_variables_are_those_that_are_read() -> None:
    rows = re.findall(r"^\| `(AIOASCEND_EMULATOR_\w+)` \| (?:`(\w+)` )?\|", section("## Settings"), re.MULTILINE)
    source = Path(config.__file__).read_text()
    read = set(re.findall(r'\("\w+", "([A-Z_]+)", ', source)) | {"FAULTS"}
    assert {f"AIOASCEND_EMULATOR_{name}" for name in read} == {variable for variable, _ in rows}
    assert {field for _, field in rows if field} <= {field.name for field in fields(Config)}


def test_the_rules_are_those_that_the_emulator_notes() -> None:
    noted = set()
    for path in Path(config.__file__).parent.glob("*.py"):
        noted.update(rules_in(ast.parse(path.read_text())))
    assert set(first_cells(section("## What hardware forbids"))) == noted


def rules_in(tree: ast.AST) -> Iterator[str]:
    """Names of rules: first argument of `note`, third of `Failure` and `Fault`, or their `rule`."""
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        position = {"note": 0, "Failure": 2, "Fault": 2}.get(name)
        if position is None:
            continue
        values = [keyword.value for keyword in node.keywords if keyword.arg == "rule"] + node.args[
            position : position + 1
        ]
        for value in values:
            if isinstance(value, ast.Name):
                value = constants.get(value.id, value)
            for part in ast.walk(value):
                if (
                    isinstance(part, ast.Constant)
                    and isinstance(part.value, str)
                    and re.fullmatch(r"[a-z]+(-[a-z]+)*", part.value)
                ):
                    yield part.value


def test_the_numbers_and_names_of_the_text_are_right() -> None:
    assert f"it is {FOUND_SOMETHING} where it would be 0" in " ".join(PAGE.split())
    assert f"`{gears.METADATA_KEY}`" in PAGE
    assert f"`{gears.DATA_INPUT}`" in PAGE
