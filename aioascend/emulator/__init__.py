"""A second implementation of pyACL's ``acl`` module, for a machine without an NPU.

Importing this package does not import onnxruntime, and of aioascend only the reader of offline models. All state lives
in an `Emulator`.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from .args import Failure
from .compile import compile_model
from .config import Config
from .ending import end_runs
from .faults import Faults
from .findings import Leak, Report, Violation
from .model import session_options
from .offline import from_bytes, from_path, write_offline
from .process import Process
from .profile import Profile
from .shapes import CompileError
from .surface import SUBMODULES, build

__all__ = [
    "CompileError",
    "Config",
    "Emulator",
    "Faults",
    "Leak",
    "Profile",
    "Report",
    "Violation",
    "session_options",
]

_alive: weakref.WeakSet[Process] = weakref.WeakSet()


class Emulator:
    """One emulated machine and the ``acl`` module that drives it.

    `acl` is shaped like pyACL's extension module and is not put into ``sys.modules``.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config if config is not None else Config.from_env()
        self._process = Process(self.config)
        self.acl, self._leaks = build(self._process)
        _alive.add(self._process)
        asked = os.environ.get("AIOASCEND_EMULATOR_FAULTS")
        if asked:
            try:
                self.faults.parse(asked)
            except ValueError as error:
                raise ValueError(f"AIOASCEND_EMULATOR_FAULTS: {error}") from None

    @property
    def modules(self) -> dict[str, ModuleType]:
        """`acl` and its submodules by the names that ``sys.modules`` has for pyACL."""
        return {"acl": self.acl, **{f"acl.{name}": getattr(self.acl, name) for name in SUBMODULES}}

    @property
    def faults(self) -> Faults:
        """Faults to inject; ``AIOASCEND_EMULATOR_FAULTS`` may ask for some from the start."""
        return self._process.faults

    def report(self) -> Report:
        """What the program has not released and what it did that hardware forbids, at any time.

        After ``acl.finalize`` leaks are what was alive then.
        """
        process = self._process
        if process.races is not None:
            process.races.finish()
        leaks = self._leaks.find() if process.left is None else process.left
        return Report(leaks, process.findings.violations)

    @property
    def host_access(self) -> Callable[[int, int, bool], None] | None:
        """For code that touches pinned memory without `acl`: call it with address, bytes and whether it writes, before.

        None when races are not looked for. A race is part of the report, like any other.
        """
        races = self._process.races
        return races.announce if races is not None else None

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """The emulator's own threads that are alive now."""
        return self._process.threads

    def compile(
        self,
        model: str | bytes,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        examples: Mapping[str, Any] | None = None,
        output_shapes: Mapping[str, Sequence[int]] | None = None,
        gears: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Fix the dynamic axes of an .onnx (path or bytes) and return an offline model for ``acl.mdl.load_from_mem``.

        `shapes` fixes inputs, `examples` are values for the runs that find output shapes which inference cannot,
        `output_shapes` wins over both. `gears` (``{"batch": [1, 2, 4]}``, ``{"hw": [[h, w], ...]}`` or ``{"dims":
        [[...], ...]}``) makes a model with gears of what `shapes` leaves open as -1, ``{"free": True}`` one whose
        axes stay open. `CompileError` says what is
        missing or wrong.
        """
        options = self._process.run_options
        mine: list[Any] = []

        def running(one: Any) -> None:
            mine.append(one)
            options.append(one)

        try:
            source = from_path(model) if isinstance(model, str) else from_bytes(model)
            return compile_model(source, self.config, shapes, examples, output_shapes, gears, running)
        except Failure as failure:
            raise CompileError(failure.text, code=failure.code) from None
        finally:
            for one in mine:
                options.remove(one)

    def end_runs(self, model_id: int) -> None:
        """Let the run of a model that is under way fail now (507011), and every later one: for whoever closes it."""
        end_runs(self._process, model_id)

    def dry_run(self, model: str | bytes) -> bytes:
        """An offline model for ``acl.mdl.load_from_mem`` that opens a real `.om` (path or bytes) for a dry run.

        As if ``Config(dry_run=True)`` held for this model alone: it is described as its file says, nothing is computed,
        and the outputs are made up. `CompileError` for what is no `.om`.
        """
        try:
            source = from_path(model) if isinstance(model, str) else from_bytes(model)
        except Failure as failure:
            raise CompileError(failure.text, code=failure.code) from None
        if not source.is_om:
            raise CompileError(f"{source.where} is no real .om: the emulator computes it, there is nothing to make up")
        return write_offline(source, {}, {}, dry_run=True)

    def shutdown(self, timeout: float = 3.0) -> None:
        """End every thread at once, ONNX Runtime's runs included, and let every waiting host thread go. Idempotent."""
        self._process.shutdown(timeout)

    def __repr__(self) -> str:
        open_devices = sum(device is not None and device.engine is not None for device in self._process.devices)
        return f"<Emulator {self.config.soc_name}, {self.config.devices} devices, {open_devices} open>"


@atexit.register
def _shutdown_all() -> None:
    for process in list(_alive):
        process.shutdown(3.0)


def _forked() -> None:
    for process in list(_alive):
        process.forked()


os.register_at_fork(after_in_child=_forked)
