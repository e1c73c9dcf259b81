from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from aioascend.cli import main


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """The one error line, without its prefix; fails where there is anything else."""
        assert self.code == 2, (self.code, self.err)
        assert self.out == ""
        lines = [line for line in self.err.splitlines() if not line.startswith("aioascend: warning:")]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("aioascend: error: "), self.err
        return lines[0].removeprefix("aioascend: error: ")


@pytest.fixture
def aioascend_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command with these arguments in this process."""
    monkeypatch.delenv("AIOASCEND_DEVICES", raising=False)

    def run(*arguments: object) -> Result:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run
