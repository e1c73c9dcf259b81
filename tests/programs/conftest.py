"""Programs are run by `aioascend emulate` in processes of their own, two at a time, each once for all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import models

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """What it printed, by lines and words."""
        return [line.split() for line in self.out.splitlines()]


class Runner:
    """Starts programs early, so that tests that wait for one let the others run."""

    def __init__(self, directory: Path) -> None:
        self._pool = ThreadPoolExecutor(2)
        self._started: dict[tuple[str, ...], Future[Ended]] = {}
        self.plain = models.affine(directory / "plain.om", [1, 8])
        self.batches = models.affine(directory / "batches.om", ["n", 3], {"batch": [1, 2, 4]})
        self.sizes = models.affine(directory / "sizes.om", [1, 3, "h", "w"], {"hw": [[4, 6], [8, 8]]})

    def start(self, *arguments: str) -> Future[Ended]:
        if arguments not in self._started:
            self._started[arguments] = self._pool.submit(_run, arguments)
        return self._started[arguments]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _run(arguments: tuple[str, ...]) -> Ended:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIOASCEND_")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "aioascend.cli", "emulate", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=HERE, env=environment, stdin=subprocess.DEVNULL
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    runner = Runner(tmp_path_factory.mktemp("models"))
    yield runner
    runner.close()


@pytest.fixture
def emulate(runner: Runner) -> Callable[..., Ended]:
    """Run `aioascend emulate` with these arguments and wait for it."""
    return lambda *arguments: runner.start(*map(str, arguments)).result()
