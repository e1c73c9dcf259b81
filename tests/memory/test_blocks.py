"""Blocks of device and pinned memory on a stub that keeps the books."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import aioascend
from aioascend.driver import Backend, Driver
from aioascend.memory.blocks import DeviceBlock, PinnedBlock, array_at
from aioascend.testing import StubDriver


@pytest.fixture
def stub() -> StubDriver:
    return StubDriver()


@pytest.fixture
def driver(stub: StubDriver) -> Iterator[Driver]:
    """A driver with a context for this thread."""
    driver = Driver(Backend("npu", stub.acl), "npu:0")
    driver.init()
    driver.set_device(0)
    yield driver
    driver.reset_device(0)
    stub.assert_balanced()


@pytest.mark.parametrize("kind", [DeviceBlock, PinnedBlock])
def test_a_block_is_freed_once(driver: Driver, stub: StubDriver, kind: type[DeviceBlock] | type[PinnedBlock]) -> None:
    block = kind(driver, 64)
    assert len(stub.live()) == 1
    for _ in range(2):
        block.free()
        assert stub.live() == ()
        assert block.address == 0


@pytest.mark.parametrize("kind", [DeviceBlock, PinnedBlock])
def test_a_block_that_is_not_there_is_told(
    driver: Driver, stub: StubDriver, kind: type[DeviceBlock] | type[PinnedBlock]
) -> None:
    stub.fail_at(1, 207001)
    with pytest.raises(aioascend.OutOfMemory):
        kind(driver, 64)


def test_pinned_memory_is_zeroed_and_arrays_over_it_write_through(driver: Driver) -> None:
    block = PinnedBlock(driver, 256)
    array = array_at(block.address, 64, np.dtype(np.float32), (2, 3), 24)
    assert array.tolist() == [[0, 0, 0], [0, 0, 0]]
    array[:] = 7
    assert array_at(block.address, 64, np.dtype(np.float32), (6,), 24).tolist() == [7] * 6
    assert array_at(block.address, 88, np.dtype(np.uint8), (168,), 168).sum() == 0
    del array
    block.free()


def test_an_array_without_elements_needs_no_memory() -> None:
    array = array_at(0, 0, np.dtype(np.int64), (3, 0), 0)
    assert (array.shape, array.dtype) == ((3, 0), np.int64)
