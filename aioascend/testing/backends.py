"""An emulator or a stub as what aioascend's sessions run on, for the length of a block."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from .. import driver
from ..emulator import Config, Emulator
from ..runtime import process
from .stub import StubDriver

__all__ = ["assert_balanced", "emulated", "emulator_fixture", "installed", "stub_fixture", "stubbed"]

_LATE_S = 1.0  # a device closes by itself a moment after the last result of its closed sessions was let go


@contextlib.contextmanager
def installed(backend: driver.Backend) -> Iterator[None]:
    """Let `backend` serve the devices of its kind inside the block. Sessions must be closed at both ends."""
    _nothing_open(backend.kind, "before")
    old = driver.install(backend)
    try:
        yield
        _nothing_open(backend.kind, "at the end of")
    finally:
        driver.restore(backend.kind, old)


def _nothing_open(kind: driver.Kind, when: str) -> None:
    limit = time.monotonic() + _LATE_S
    while (names := _names(kind)) and time.monotonic() < limit:
        time.sleep(0.001)
    if names:
        raise AssertionError(f"{', '.join(names)} still open {when} the block: close every session of it first")


def _names(kind: driver.Kind) -> list[str]:
    process.closes_over(_LATE_S)
    return [str(core.name) for core in process.open_devices() if core.name.startswith(kind)]


@contextlib.contextmanager
def stubbed(**settings: Any) -> Iterator[StubDriver]:
    """A fresh `StubDriver` as the NPU of this process: ``devices="npu:0"`` is the stub. `settings` are its arguments.

    Example::

        with aioascend.testing.stubbed() as stub:
            stub.fail("acl.rt.malloc", 207001)
            with pytest.raises(aioascend.OutOfMemory):
                aioascend.Session(stub.model, devices="npu:0").open_sync()
            stub.assert_balanced()
    """
    stub = StubDriver(**settings)
    with installed(driver.Backend("npu", stub.acl)):
        yield stub


@contextlib.contextmanager
def emulated(*, faults: str | None = None, check: bool = True, **settings: Any) -> Iterator[Emulator]:
    """A fresh emulator as what ``devices="emulator:0"`` means; with `check`, `assert_balanced` holds at the end.

    `settings` are those of `aioascend.emulator.Config`; strict mode is on unless ``strict=False``. `faults` is a text
    as ``"acl.rt.malloc#3=207001"``; more can be asked for through ``emulator.faults``.

    Example::

        with aioascend.testing.emulated(devices=2) as emulator:
            emulator.faults.fail_task("execute", 507015)
            async with aioascend.Session("model.onnx", devices="emulator:1") as session:
                with pytest.raises(aioascend.ExecutionFailed):
                    await session.infer(x)
                await session.infer(x)
    """
    emulator = Emulator(Config.from_env(**{"strict": True, **settings}))
    if faults is not None:
        emulator.faults.parse(faults)
    try:
        with installed(driver.Backend("emulator", emulator.acl, emulator)):
            yield emulator
        if check:
            assert_balanced(emulator)
    finally:
        emulator.shutdown()


def assert_balanced(what: Emulator | StubDriver) -> None:
    """Assert that everything made on an emulator or a stub was released, and nothing done that hardware forbids.

    ``acl.init`` without ``acl.finalize`` is no leak: others in a process may share it.
    """
    if isinstance(what, StubDriver):
        what.assert_balanced()
        return
    report = what.report()
    problems = [str(leak) for leak in report.leaks if leak.kind != "init"] + [str(one) for one in report.violations]
    if problems:
        raise AssertionError(f"{len(problems)} not balanced:\n  " + "\n  ".join(problems))


def emulator_fixture(**settings: Any) -> Callable[..., Any]:
    """A pytest fixture of `emulated` with these arguments: ``emulator = emulator_fixture(devices=2)`` in conftest.py.

    The test's fixture is the `Emulator`.
    """
    import pytest

    @pytest.fixture
    def emulator() -> Iterator[Emulator]:
        with emulated(**settings) as one:
            yield one

    return emulator


def stub_fixture(**settings: Any) -> Callable[..., Any]:
    """A pytest fixture of `stubbed` with these arguments: ``stub = stub_fixture()``; its value is the `StubDriver`."""
    import pytest

    @pytest.fixture
    def stub() -> Iterator[StubDriver]:
        with stubbed(**settings) as one:
            yield one

    return stub
