"""Runs the files of examples/ as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """This process's environment, with the checkout importable and the emulator chosen."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "AIOASCEND_DEVICES": "emulator:0"}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """`run("quickstart.py", "--help")`; `code` is the exit code wanted.

    `without="PIL"` makes that import fail and `without_wheels=True` hides every installed package from
    `importlib.metadata`. Skips when the example says that something is missing which was not hidden.
    """

    def run(
        name: str, *arguments: object, code: int = 0, without: str = "", without_wheels: bool = False
    ) -> subprocess.CompletedProcess[str]:
        script = ROOT / "examples" / name
        before = f"import runpy, sys; sys.path.insert(0, {str(script.parent)!r}); sys.argv[0] = {str(script)!r}; "
        if without:
            before += f"sys.modules[{without!r}] = None; "
        if without_wheels:
            before += "from importlib import metadata; metadata.distribution = metadata.Distribution.from_name = "
            before += "lambda name: (_ for _ in ()).throw(metadata.PackageNotFoundError(name)); "
        command = ["-c", before + "runpy.run_path(sys.argv[0], run_name='__main__')"]
        if not (without or without_wheels):
            command = [str(script)]
        done = subprocess.run(
            [sys.executable, *command, *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode and not (without or without_wheels):
            said = done.stderr.splitlines()[-1]
            if " is not installed" in said:
                pytest.skip(said)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run
