"""The command as a whole: help, wrong usage, exit codes, pipes and signals."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from .conftest import Result
from .models import double

PROGRAM = [sys.executable, "-m", "aioascend.cli"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("command", [[], ["devices"], ["inspect"], ["run"], ["bench"]])
def test_help_shows_examples(aioascend_command: Callable[..., Result], command: list[str]) -> None:
    result = aioascend_command(*command, "--help")

    assert result.code == 0
    assert "examples:\n  aioascend " in result.out
    assert result.err == ""


def test_version_is_told(aioascend_command: Callable[..., Result]) -> None:
    result = aioascend_command("--version")

    assert result.code == 0
    assert result.out.startswith("aioascend ")


@pytest.mark.parametrize(
    "arguments, word",
    [
        ([], "COMMAND"),
        (["serve"], "serve"),
        (["run"], "MODEL"),
        (["run", "m.onnx", "--input"], "--input"),
        (["run", "m.onnx", "--shape", "x=1,3"], "NAME:SIZES"),
        (["run", "m.onnx", "--example", "sr"], "NAME=VALUE"),
        (["run", "m.onnx", "--example", "x=missing.npy"], "missing.npy"),
        (["inspect", "m.onnx", "--frobnicate"], "--frobnicate"),
        (["inspect", "m.onnx", "--output-shape", "y"], "NAME:SIZES"),
        (["inspect", "m.onnx", "--sha", "x:1"], "--sha"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    aioascend_command: Callable[..., Result], arguments: list[str], word: str
) -> None:
    message = aioascend_command(*arguments).message

    assert word in message
    assert "--help" in message


@pytest.mark.parametrize("option", ["--shape", "--output-shape"])
def test_a_shape_given_twice_is_refused(aioascend_command: Callable[..., Result], option: str) -> None:
    message = aioascend_command("inspect", "m.onnx", option, "x:1", option, "x:2").message

    assert message == f"{option} is given twice for x"


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    model = double(tmp_path / "model.onnx")
    command = subprocess.Popen(
        [*PROGRAM, "inspect", str(model), "--device", "emulator:0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout
    assert command.stderr
    command.stdout.close()
    err = command.stderr.read()
    command.stderr.close()

    assert command.wait(60) == 141
    assert err == b""


def open_for_writing(pipe: Path, seconds: float = 60) -> int:
    """Open a pipe as soon as somebody opens it for reading, and give its file descriptor."""
    limit = time.monotonic() + seconds
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < limit, "nobody reads the pipe"
            time.sleep(0.02)


def test_ctrl_c_ends_the_command_quietly_with_130(tmp_path: Path) -> None:
    model = double(tmp_path / "model.onnx")
    pipe = tmp_path / "x.npy"
    os.mkfifo(pipe)
    command = subprocess.Popen(
        [*PROGRAM, "run", str(model), "--device", "emulator:0", "--input", str(pipe)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # The session is open, and the command waits for an input that does not come.
    writer = open_for_writing(pipe)
    limit = time.monotonic() + 60
    while command.poll() is None and time.monotonic() < limit:
        command.send_signal(signal.SIGINT)  # one that comes before the read has begun is retried by the read
        # A second one in the interpreter's last moments would end it as signals do, with another code.
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(timeout=3)
    os.close(writer)
    out, err = command.communicate(timeout=10)

    assert command.returncode == 130
    assert out == b""
    assert err == b""


def test_a_tensor_name_the_terminal_cannot_show_does_not_end_the_command(tmp_path: Path) -> None:
    model = double(tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    done = subprocess.run(
        [*PROGRAM, "run", str(model), "--input", str(tmp_path / "x.npy"), "-o", str(tmp_path / "输出")],
        cwd=ROOT,
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert b"\\u8f93\\u51fa" in done.stdout
    assert (tmp_path / "输出" / "y.npy").exists()
