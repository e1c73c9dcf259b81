"""Pools on a stub that keeps the driver's books: what they ask of the driver, and what comes back how."""

from __future__ import annotations

import logging
import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import aioascend
from aioascend.driver import Backend, Driver
from aioascend.driver.constants import MallocPolicy
from aioascend.memory.blocks import DeviceBlock
from aioascend.memory.books import Limits
from aioascend.memory.pool import DevicePool, PinnedPool, Pools
from aioascend.memory.relief import Relief
from aioascend.memory.tracing import caller
from aioascend.testing import StubDriver

KIB, MIB = 1 << 10, 1 << 20
HUGE, NORMAL = int(MallocPolicy.HUGE_FIRST), int(MallocPolicy.NORMAL_ONLY)


class World:
    """A device's pools, the calls of `malloc` that they have made, and what has been asked to be swept or was noted."""

    def __init__(self) -> None:
        self.stub = StubDriver()
        self.driver = Driver(Backend("npu", self.stub.acl), "npu:0")
        self.driver.init()
        self.driver.set_device(0)
        self.calls: list[tuple[int, ...]] = []
        self.disposals = 0
        self.notes: list[str] = []
        for name in ("malloc", "malloc_host"):
            self._count(name)
        self.pools = Pools(self.driver, self._quietly, self._dispose)
        self.pools.open(1)

    def _count(self, name: str) -> None:
        call = getattr(self.stub.acl.rt, name)

        def counted(*args: int) -> Any:
            self.calls.append(args)
            return call(*args)

        setattr(self.stub.acl.rt, name, counted)

    def _quietly(self, function: Any, *args: Any) -> None:
        try:
            function(*args)
        except aioascend.AclError as error:
            self.notes.append(str(error))

    def _dispose(self) -> None:
        self.disposals += 1

    def limited(self, limits: Limits, kind: type[DevicePool] = DevicePool) -> DevicePool:
        """A pool of its own bounds, in which nothing lies idle at the end."""
        pool = kind(self.driver, limits, self._quietly, self._dispose)
        pool.open(1)
        return pool


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.stub.clear()
    world.pools.close(stuck=False)
    world.driver.reset_device(0)
    world.stub.assert_balanced()


def test_a_hit_makes_no_call_and_a_miss_asks_for_a_block_of_the_class_in_huge_pages(world: World) -> None:
    pool = world.pools.device
    assert pool.take_idle(1000) is None
    pool.take(1000).release()
    assert world.calls == [(1024, HUGE)]
    for nbytes in (1000, 1024, 700, 897):
        pool.take(nbytes).release()
        block = pool.take_idle(nbytes)
        assert block is not None
        block.release()
    pool.take(640).release()  # 1024 would be more than half as much again
    assert world.calls == [(1024, HUGE), (640, HUGE)]
    assert pool.statistics().hit_rate > 0.5


@pytest.mark.parametrize("kind", ["device", "pinned"])
def test_a_block_that_is_refused_is_asked_for_without_what_its_class_rounds_up_and_is_not_kept(
    world: World, kind: str
) -> None:
    pool: Any = getattr(world.pools, kind)
    function = "acl.rt.malloc" if kind == "device" else "acl.rt.malloc_host"
    world.stub.fail(function, 207001)
    block = pool.take(1000)
    assert world.calls == ([(1024, HUGE), (1000, NORMAL)] if kind == "device" else [(1024,), (1000,)])
    figures = pool.statistics()
    assert (figures.used, figures.fragmentation, figures.misses) == (1000, 0, 1)
    block.release()
    assert (pool.statistics().idle, world.disposals) == (0, 1)
    assert pool.sweep() == 1000


def test_device_memory_of_a_class_is_asked_for_in_normal_pages_and_pinned_memory_not_again(world: World) -> None:
    world.stub.fail("acl.rt.malloc", 207001)
    world.pools.device.take(1024).release()
    assert world.calls == [(1024, HUGE), (1024, NORMAL)]
    assert world.pools.device.statistics().idle == 1024
    world.calls.clear()
    world.stub.fail("acl.rt.malloc_host", 207001)
    with pytest.raises(aioascend.OutOfMemory):
        world.pools.pinned.take(1024)
    assert world.calls == [(1024,)]


@pytest.mark.parametrize("refused", range(5))
def test_whichever_allocation_finds_no_memory_the_books_are_right(world: World, refused: int) -> None:
    """The first is repeated in normal pages, then idle memory is freed and both are tried once more."""
    pool, relief = world.pools.device, Relief(world.driver, world.pools.trim)
    idle = [pool.take(64 * KIB), pool.take(64 * KIB)]
    for block in idle:
        block.release()
    world.calls.clear()
    if refused:
        world.stub.fail("acl.rt.malloc", 207001, times=refused)
    if refused < 4:
        block = relief.retrying(pool.take, 1000)
        assert len(world.calls) == refused + 1
        figures = pool.statistics()
        assert figures.used == (1000 if refused % 2 else 1024)
        assert figures.idle == (128 * KIB if refused < 2 else 0)
        block.release()
        pool.sweep()
    else:
        with pytest.raises(aioascend.OutOfMemory, match=f"after {128 * KIB} bytes of idle memory were given back"):
            relief.retrying(pool.take, 1000)
        assert len(world.calls) == 4
        assert (pool.statistics().used, pool.statistics().blocks) == (0, 0)
    assert pool.statistics().high_water >= 128 * KIB


def test_what_was_taken_by_something_that_found_too_little_memory_does_not_stay_idle(world: World) -> None:
    pool, relief = world.pools.device, Relief(world.driver, world.pools.trim)
    world.stub.fail("acl.rt.malloc", 207001, nth=2, times=2)
    world.stub.fail("acl.rt.malloc", 207001, nth=5, times=2)

    def both() -> None:
        with pool.take(64 * KIB):
            pool.take(64 * KIB)

    with pytest.raises(aioascend.OutOfMemory):
        relief.retrying(both)
    assert pool.statistics().blocks == 0


def test_givers_give_back_before_the_pools_are_trimmed(world: World) -> None:
    relief = Relief(world.driver, world.pools.trim)
    block = world.pools.pinned.take(2048)
    relief.add(block.release)
    assert relief.relieve() == 2048
    relief.remove(block.release)
    relief.remove(block.release)
    assert relief.relieve() == 0


def test_what_may_not_lie_idle_is_freed_on_the_control_thread_and_not_where_it_came_back(world: World) -> None:
    pool = world.limited(Limits(depth=1, nbytes=MIB))
    blocks = [pool.take(1000) for _ in range(3)]
    for block in blocks:
        block.release()
    assert (world.disposals, len(world.stub.live())) == (2, 3)
    assert pool.sweep() == 2048
    assert len(world.stub.live()) == 1
    pool.close(stuck=False)


def test_memory_that_cannot_be_freed_is_noted_and_the_rest_is_freed(world: World) -> None:
    pool = world.pools.device
    blocks = [pool.take(1000) for _ in range(3)]
    for block in blocks:
        block.release()
    world.stub.fail("acl.rt.free", 507000)
    assert pool.trim() == 3072
    assert len(world.notes) == 1
    assert "507000" in world.notes[0]
    assert world.stub.live() == ()


def test_a_lease_that_ends_in_the_middle_of_anything_waits_for_no_lock(world: World) -> None:
    pool = world.pools.device
    block = pool.take(1000)
    with pool._lock:  # a finalizer runs wherever the collector likes, on this thread too
        block.release()
        assert pool.statistics().used == 1024
    assert pool.statistics().used == 0  # entered by whoever comes next
    surplus = world.limited(Limits(depth=0, nbytes=0))
    block = surplus.take(1000)
    with surplus._lock:
        block.release()
    assert world.disposals == 0
    assert surplus.take_idle(1000) is None
    assert world.disposals == 1
    surplus.close(stuck=False)


def test_leases_that_end_on_other_threads(world: World) -> None:
    """One thread takes, as the control thread does; others take what is idle, write their mark and give back."""
    pool = world.limited(Limits(depth=4, nbytes=16 * KIB))
    holders: dict[int, int] = {}
    clashes: list[int] = []
    interval = sys.getswitchinterval()

    def use(seed: int, blocks: list[DeviceBlock]) -> None:
        rng = random.Random(seed)
        for block in blocks:
            held = [block, pool.take_idle(rng.randrange(1, 4096))]
            for one in held:
                if one is not None:
                    address, me = one.address, threading.get_ident()
                    if holders.setdefault(address, me) != me:
                        clashes.append(address)
                    del holders[address]
                    one.release()
                    one.release()

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            for seed in range(40):
                batch = [pool.take(random.Random(seed * 100 + i).randrange(1, 4096)) for i in range(12)]
                done = [threads.submit(use, seed, batch[i::4]) for i in range(4)]
                for future in done:
                    future.result()
                pool.sweep()
    finally:
        sys.setswitchinterval(interval)
    figures = pool.statistics()
    assert clashes == []
    assert (figures.used, figures.fragmentation) == (0, 0)
    assert 0 < figures.idle <= 16 * KIB
    assert sum(1 for _ in world.stub.live()) == figures.blocks
    pool.close(stuck=False)


def test_who_has_memory_when_the_device_is_closed_is_told(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = world.pools.device.take(1000)
    monkeypatch.setenv("AIOASCEND_TRACE_MEMORY", "1")
    world.pools.close(stuck=False)
    world.pools.open(2)
    assert world.pools.tracing
    unknown.release()
    here = caller()
    device, pinned = world.pools.device.take(500), world.pools.pinned.take(600, "somebody")
    assert device.place is not None
    assert here is not None
    assert device.place.rpartition(":")[0] == here.rpartition(":")[0] == __file__
    with caplog.at_level(logging.WARNING, "aioascend.memory"):
        world.pools.report()
    assert [record.getMessage() for record in caplog.records] == [
        f"npu:0 is closed with 500 bytes of device memory not released, asked for at {device.place}",
        "npu:0 is closed with 600 bytes of pinned memory not released, held for somebody",
    ]
    device.release()
    assert device.place is None
    pinned.release()
    for value in ("", "0", "No"):
        monkeypatch.setenv("AIOASCEND_TRACE_MEMORY", value)
        world.pools.close(stuck=False)
        world.pools.open(3)
        assert not world.pools.tracing
    caplog.clear()
    with world.pools.device.take(700) as block, caplog.at_level(logging.WARNING, "aioascend.memory"):
        assert block.place is None
        world.pools.report()
    assert caplog.records[0].getMessage().endswith("and AIOASCEND_TRACE_MEMORY=1 would say where they were asked for")


def test_on_a_thread_of_ours_there_is_no_caller() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(lambda: caller()).result() is not None
    places: list[str | None] = []
    thread = threading.Thread(target=Asking(places).ask)
    thread.start()
    thread.join()
    assert places == [None]


class Asking:
    """Somebody who asks from code that counts as aioascend's."""

    def __init__(self, places: list[str | None]) -> None:
        namespace: dict[str, Any] = {"caller": caller, "places": places}
        source = "def ask():\n    places.append(caller())\n"
        exec(compile(source, aioascend.__file__, "exec"), namespace)
        self.ask = namespace["ask"]


def test_pools_of_both_kinds_are_counted_apart(world: World) -> None:
    assert isinstance(world.pools.pinned, PinnedPool)
    with world.pools.device.take(1000), world.pools.pinned.take(3000):
        figures = world.pools.statistics()
        assert (figures.device.used, figures.pinned.used) == (1024, 3072)
    assert world.pools.trim() == 4096
    world.pools.sweep()
