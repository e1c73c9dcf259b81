from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aioascend.emulator import Config, Emulator

from .kit import Driver


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No thread of an emulator is alive after a test. (There are no sessions here whose leavings need a collection.)"""
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("aioascend")]


@pytest.fixture
def machine() -> Iterator[Emulator]:
    """An initialised emulator of two small devices, with no device open."""
    emulator = Emulator(Config(devices=2, memory=256 << 20))
    assert emulator.acl.init() == 0
    yield emulator
    emulator.shutdown()
    assert emulator.threads == ()


@pytest.fixture
def acl(machine: Emulator) -> Any:
    return machine.acl


@pytest.fixture
def npu(machine: Emulator) -> Driver:
    """Device 0 with a context current on this thread."""
    return Driver(machine)
