"""An emulator or a stub as what aioascend's sessions run on, for the length of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .. import driver
from ..emulator import Emulator
from ..runtime import process
from .stub import StubDriver

__all__ = ["installed", "stubbed"]


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
    names = [str(core.name) for core in process.open_devices() if core.name.startswith(kind)]
    if names:
        raise AssertionError(f"{', '.join(names)} still open {when} the block: close every session of it first")


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
