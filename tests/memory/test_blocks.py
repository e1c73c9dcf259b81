"""Leases on device and pinned memory of a pool, on a stub that keeps the driver's books."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import aioascend
from aioascend.driver import Backend, Driver
from aioascend.memory.blocks import array_at
from aioascend.memory.pool import MemoryPool, Pools
from aioascend.testing import StubDriver

KINDS = pytest.mark.parametrize("kind", ["device", "pinned"])


@pytest.fixture
def stub() -> StubDriver:
    return StubDriver()


@pytest.fixture
def pools(stub: StubDriver) -> Iterator[Pools]:
    """The pools of a device whose context is this thread's; at the end everything is freed."""
    driver = Driver(Backend("npu", stub.acl), "npu:0")
    driver.init()
    driver.set_device(0)
    pools = Pools(driver, lambda function, *args: function(*args), lambda: None)
    pools.open(1)
    yield pools
    pools.close(stuck=False)
    driver.reset_device(0)
    stub.assert_balanced()


def pool(pools: Pools, kind: str) -> MemoryPool[aioascend.memory.blocks.DeviceBlock]:
    return getattr(pools, kind)  # type: ignore[no-any-return]


class Owner:
    """Something that can be collected."""


@KINDS
def test_a_lease_ends_once(pools: Pools, stub: StubDriver, kind: str) -> None:
    lender = pool(pools, kind)
    block = lender.take(1000)
    address = block.address
    assert (block.nbytes, address % 64) == (1000, 0)
    block.check()
    for _ in range(2):
        block.release()
        assert block.address == 0
        assert (lender.statistics().used, lender.statistics().idle) == (0, 1024)
    with pytest.raises(aioascend.StaleLease, match="was given back"):
        block.check()
    first, second = lender.take(1000), lender.take(1000)
    assert first.address == address != second.address
    block.release()  # nothing of its successor's
    assert lender.statistics().used == 2048
    first.release()
    second.release()


@KINDS
def test_leaving_a_with_block_ends_the_lease(pools: Pools, kind: str) -> None:
    with pool(pools, kind).take(64) as block:
        assert pool(pools, kind).statistics().used == 512
    assert (block.address, pool(pools, kind).statistics().used) == (0, 0)


@KINDS
def test_the_end_of_an_owner_ends_the_lease_unless_it_has_ended_before(pools: Pools, kind: str) -> None:
    lender = pool(pools, kind)
    for early in (False, True):
        owner, block = Owner(), lender.take(64)
        block.release_with(owner)
        if early:
            block.release()
            other = lender.take(64)
        assert lender.statistics().used == 512
        del owner
        gc.collect()
        assert lender.statistics().used == (512 if early else 0)
    assert other.address
    other.release()


@KINDS
def test_an_abandoned_block_is_neither_lent_again_nor_freed(pools: Pools, stub: StubDriver, kind: str) -> None:
    lender = pool(pools, kind)
    block = lender.take(64)
    address = block.address
    for _ in range(2):
        block.abandon()
    block.release()
    figures = lender.statistics()
    assert (figures.used, figures.idle, figures.blocks, block.address) == (0, 0, 0, 0)
    assert pools.trim() == 0
    assert len(stub.live()) == 1
    (stub.acl.rt.free if kind == "device" else stub.acl.rt.free_host)(address)


@KINDS
def test_a_block_that_is_not_there_is_told(pools: Pools, stub: StubDriver, kind: str) -> None:
    stub.fail("acl.rt.malloc" if kind == "device" else "acl.rt.malloc_host", 207001, times=2)
    with pytest.raises(aioascend.OutOfMemory):
        pool(pools, kind).take(65)
    assert pool(pools, kind).statistics().blocks == 0


@KINDS
def test_a_lease_that_ends_between_two_contexts_is_not_lent_in_the_second(
    pools: Pools, stub: StubDriver, kind: str
) -> None:
    block = pool(pools, kind).take(64)
    pools.close(stuck=False)
    block.release()
    pools.open(2)
    assert pool(pools, kind).take_idle(64) is None
    pools.sweep()
    assert stub.live() == ()


@KINDS
def test_a_lease_of_an_earlier_context_is_stale(pools: Pools, stub: StubDriver, kind: str) -> None:
    lender = pool(pools, kind)
    block = lender.take(64)
    pools.close(stuck=False)
    with pytest.raises(aioascend.StaleLease, match="an earlier context of npu:0"):
        block.check()
    assert lender.take_idle(64) is None
    assert len(stub.live()) == (1 if kind == "pinned" else 0)  # which somebody may be looking at
    pools.open(2)
    block.release()
    assert lender.statistics().idle == 0  # it is not lent in another context
    pools.sweep()
    assert stub.live() == ()
    with lender.take(64) as fresh:
        fresh.check()


def test_device_memory_that_a_hanging_stream_may_touch_goes_with_its_context(pools: Pools, stub: StubDriver) -> None:
    block, idle = pools.device.take(64), pools.device.take(64)
    address = block.address
    idle.release()
    pools.close(stuck=True)
    assert len(stub.live()) == 1
    assert pools.device.statistics().blocks == 0
    block.release()
    assert len(stub.live()) == 1
    stub.acl.rt.free(address)


def test_pinned_memory_is_zeroed_and_arrays_over_it_write_through(pools: Pools) -> None:
    for _ in range(2):
        block = pools.pinned.take(256)
        array = array_at(block.address, 64, np.dtype(np.float32), (2, 3), 24)
        assert array.tolist() == [[0, 0, 0], [0, 0, 0]]
        array[:] = 7
        assert array_at(block.address, 64, np.dtype(np.float32), (6,), 24).tolist() == [7] * 6
        assert array_at(block.address, 88, np.dtype(np.uint8), (168,), 168).sum() == 0
        del array
        block.release()
    assert pools.pinned.statistics().hits == 1


def test_an_array_without_elements_needs_no_memory() -> None:
    array = array_at(0, 0, np.dtype(np.int64), (3, 0), 0)
    assert (array.shape, array.dtype) == ((3, 0), np.int64)
