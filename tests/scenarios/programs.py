"""Whole programs in interpreters of their own, under a watchdog."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
PRELUDE = """
import asyncio, os, signal, sys, threading, time
import numpy as np
import aioascend
"""
# Python 3.12 warns of every fork of a process with threads, which is what some of these programs are about.
_PYTHON = [sys.executable, "-W", "ignore:This process:DeprecationWarning"]


@dataclass(frozen=True)
class Done:
    """How a program ended: `code` as a shell would say it, negative for a signal."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def lines(self) -> list[str]:
        """What it printed."""
        return self.out.splitlines()


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a program: this checkout is importable, the emulator is meant by "auto"."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "AIOASCEND_DEVICES": "emulator:0", **(extra or {})}


class Program:
    """A program under way. The watchdog kills its whole process group."""

    def __init__(self, command: list[str], extra: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(extra),
            start_new_session=True,
        )

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def send(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def finish(self, timeout: float = 60.0) -> Done:
        """Wait until it has ended; `seconds` are counted from this call."""
        started = time.monotonic()
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"still running after {timeout} s; it said:\n{out}\n{err}") from None
        return Done(self.process.returncode, out, err, time.monotonic() - started)

    def kill(self) -> None:
        """Kill it and whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def leftovers(self, seconds: float = 3.0) -> list[int]:
        """Processes of its group that are still alive after so long, zombies apart."""
        limit = time.monotonic() + seconds
        while (alive := self.alive()) and time.monotonic() < limit:
            time.sleep(0.02)
        return alive

    def alive(self) -> list[int]:
        """Processes of its group that are alive now, zombies apart."""
        alive = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = entry.read_text().rpartition(")")[2].split()[:3]
                if int(group) == self.process.pid and state not in "ZX":
                    alive.append(int(entry.parent.name))
        return alive


@contextlib.contextmanager
def running(body: str, *arguments: str, extra: Mapping[str, str] | None = None) -> Iterator[Program]:
    """A program of this text, killed at the end of the block if it is still there."""
    with commanded([*_PYTHON, "-c", PRELUDE + textwrap.dedent(body), *arguments], extra) as program:
        yield program


@contextlib.contextmanager
def commanded(command: list[str], extra: Mapping[str, str] | None = None) -> Iterator[Program]:
    """The same for any command."""
    program = Program(command, extra)
    try:
        yield program
    finally:
        program.kill()
        program.process.communicate()


def run(body: str, *arguments: str, timeout: float = 60.0, extra: Mapping[str, str] | None = None) -> Done:
    """Run a program of this text to its end."""
    with running(body, *arguments, extra=extra) as program:
        return program.finish(timeout)


def run_file(path: Path, body: str, *arguments: str, timeout: float = 60.0) -> Done:
    """The same from a file, which children started by "spawn" import."""
    path.write_text(PRELUDE + textwrap.dedent(body))
    with commanded([*_PYTHON, str(path), *arguments]) as program:
        return program.finish(timeout)


def get(address: Path, path: str, timeout: float = 30.0) -> httpx.Response:
    """One request to a web server that listens on a socket file, as soon as it listens."""
    await_listening(address, timeout)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(address)), base_url="http://server") as client:
        return client.get(path, timeout=timeout)


def await_listening(address: Path, timeout: float = 30.0) -> None:
    """Return when something accepts connections at a socket file."""
    limit = time.monotonic() + timeout
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(address)) == 0:
                return
        assert time.monotonic() < limit, "the server never listened"
        time.sleep(0.02)
