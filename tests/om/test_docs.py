"""The outputs that docs/om.md shows are those of the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aioascend.cli import main

from . import real

PAGE = (Path(__file__).parents[2] / "docs" / "om.md").read_text()
SHOWN = re.findall(r"^```\n\$ aioascend (inspect .*)\n((?:.*\n)*?)```$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command, output", SHOWN, ids=[command for command, _ in SHOWN])
def test_a_shown_command_gives_what_is_shown(
    command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in real.NAMES:
        (tmp_path / name).symlink_to(real.path(name))
    whole = real.path("vae_hh.om").read_bytes()
    (tmp_path / "half.om").write_bytes(whole[: len(whole) // 2])
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == (2 if "half.om" in command else 0)
    captured = capsys.readouterr()
    assert captured.out + captured.err == output


def test_the_page_shows_commands() -> None:
    assert len(SHOWN) == 3
