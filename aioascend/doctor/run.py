"""Running all checks: a process for each group, a time limit for each check, one row for each outcome."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import driver
from .checks import Check, Group, Row
from .groups import GROUPS
from .tiny_model import tiny_model

__all__ = ["examine"]

_OPENING = 25.0
_CLOSING = 5.0
_GRACE = 1.0

Progress = Callable[[Row], None]


class _Silent(Exception):
    """The process said nothing within its time."""


class _Ended(Exception):
    """The process is gone."""


def examine(
    device: str,
    *,
    model: str | None = None,
    limit: float = 58.0,
    groups: Sequence[str] | None = None,
    alter: str | None = None,
    progress: Progress = lambda row: None,
) -> list[Row]:
    """Run every check on one device and give their rows; `progress` is told each as it comes.

    `model` is the path of an offline model; on the emulator there is one. After `limit` seconds the checks that are
    left are not made. `groups` limits it to these; `alter` names a function (``module:function``) that is given the
    `acl` module first, in every process. Raises `BackendUnavailable` for a device that is not there.
    """
    name = driver.resolve(device)[0]
    rows = []
    with tempfile.TemporaryDirectory(prefix="aioascend-doctor-") as folder:
        if model is None and name.kind == "emulator":
            path = Path(folder) / "tiny.onnx"
            path.write_bytes(tiny_model())
            model = str(path)
        examination = _Examination(str(name), model, time.monotonic() + limit, alter)
        for group in GROUPS.values():
            if groups is None or group.name in groups:
                for row in examination.rows(group):
                    progress(row)
                    rows.append(row)
    return rows


class _Examination:
    def __init__(self, device: str, model: str | None, deadline: float, alter: str | None) -> None:
        self._device = device
        self._model = model
        self._deadline = deadline
        self._alter = alter

    def rows(self, group: Group) -> Iterator[Row]:
        """The rows of a group; after a check that hung or crashed the rest gets a new process."""
        first, checks = 0, group.checks
        while first < len(checks):
            if time.monotonic() >= self._deadline:
                yield from (check.row("no time was left", "unavailable") for check in checks[first:])
                return
            with _Process(self._device, group.name, first, self._model, self._alter) as process:
                for row in self._until_it_stops(process, group, checks[first:]):
                    first += 1
                    yield row

    def _until_it_stops(self, process: _Process, group: Group, checks: list[Check]) -> Iterator[Row]:
        """At least one row: those until the process has done them all, or has stopped in the middle."""
        try:
            ready = process.read(self._within(_OPENING))
        except (_Silent, _Ended) as stopped:
            late = isinstance(stopped, _Silent) and time.monotonic() >= self._deadline
            reason = "no time was left" if late else f"the device could not be opened: {stopped}"
            yield from (check.row(reason, "unavailable") for check in checks)
            return
        if "failed" in ready:
            reason = f"the device could not be opened: {ready['failed']}"
            yield from (check.row(reason, "unavailable") for check in checks)
            return
        for number, check in enumerate(checks):
            try:
                process.read(self._within(_CLOSING))  # that it begins
                done = process.read(self._within(check.seconds + _GRACE))
            except _Silent as silent:
                late = time.monotonic() >= self._deadline
                yield check.row("no time was left", "unavailable") if late else check.row(str(silent), "hung")
            except _Ended as ended:
                yield check.row(str(ended), "differs")
            else:
                yield check.row(done["seen"], done["verdict"])
                continue
            if not group.opens:  # each builds on the one before
                text = f"not reached after {check.fact!r}"
                yield from (later.row(text, "unavailable") for later in checks[number + 1 :])
            return
        process.finish(self._within(_CLOSING))

    def _within(self, seconds: float) -> float:
        return max(0.05, min(seconds, self._deadline - time.monotonic()))


class _Process:
    """One child; killed at the end of the block if it is still there."""

    def __init__(self, device: str, group: str, first: int, model: str | None, alter: str | None) -> None:
        reading, writing = os.pipe()
        self._pipe = reading
        self._rest = b""
        self._output: Any = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        task = {"device": device, "group": group, "first": first, "model": model, "alter": alter, "pipe": writing}
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.child", json.dumps(task)],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=(writing,),
            )
        finally:
            os.close(writing)

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._pipe)
        self._output.close()

    def read(self, seconds: float) -> dict[str, Any]:
        """The next message; raises `_Silent` when none comes in time and `_Ended` when none can come."""
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._pipe], [], [], left)[0]:
                raise _Silent(f"no end within {seconds:.0f} s")
            more = os.read(self._pipe, 1 << 16)
            if not more:
                raise _Ended(self._ending())
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def finish(self, seconds: float) -> None:
        """Let it close the device and end; one that does not is killed."""
        try:
            self.read(seconds)
            self._process.wait(seconds)
        except (_Silent, _Ended, subprocess.TimeoutExpired):
            pass

    def _ending(self) -> str:
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return "its process closed the pipe"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"its process ended by {how}" + (f": {last[:200]}" if last else "")
