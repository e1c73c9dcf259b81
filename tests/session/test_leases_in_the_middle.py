"""Holders of pinned memory while the context goes, the session closes or memory runs out."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import anyio
import pytest

import aioascend
from aioascend.emulator import Emulator
from aioascend.runtime.leases import Lease, LeasePool
from tests import kit
from tests.session.test_recovery_in_the_middle import core_of, inside, kill_context, ones
from tests.session.test_under_faults import Books
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("emulator"), pytest.mark.logs_errors]


def pool(session: aioascend.Session) -> LeasePool:
    return inside(session).leases


def block_control(session: aioascend.Session) -> threading.Event:
    """Nothing happens on the control thread until the event is set."""
    go = threading.Event()
    core_of(session).control(go.wait, 10)
    return go


async def use(session: aioascend.Session, value: float) -> float:
    async with session.request() as request:
        request.inputs["x"][:] = value
        return float((await request.run())[0][0])


async def held(session: aioascend.Session) -> Any:
    request = session.request()
    await request.__aenter__()
    return request


async def leave(request: Any) -> None:
    await request.__aexit__(None, None, None)


@pytest.mark.parametrize("fails", [False, True])
async def test_pinned_memory_that_is_being_made_when_the_context_goes_stays_within_its_bound(
    emulator: Emulator, fails: bool
) -> None:
    async with aioascend.Session(kit.add(1), depth=2) as session:
        for _ in range(3):
            go = block_control(session)
            asking = [asyncio.ensure_future(use(session, 1)) for _ in range(2)]
            await eventually(lambda: pool(session)._room == 0)
            kill_context(session)
            core_of(session).call(lambda: None).result(10)
            if fails:
                emulator.faults.fail("acl.rt.malloc_host", 507000)
            go.set()
            with anyio.fail_after(20):
                results = await asyncio.gather(*asking, return_exceptions=True)
            emulator.faults.clear()
            for result in results:
                assert result == 2 or isinstance(result, aioascend.AioascendError)
            await eventually(lambda: session.ready, seconds=20)
            gc.collect()
            await eventually(lambda: session.statistics().leased == 0)
            leases = pool(session)
            await eventually(lambda leases=leases: leases._room + len(leases._free) == leases._limit)  # type: ignore[misc]
        assert await use(session, 1) == 2


async def test_who_asks_while_a_rebuild_is_under_way_is_served_after_it(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        assert await use(session, 1) == 2
        go = block_control(session)
        rebuilding = asyncio.ensure_future(device.rebuild())
        await eventually(lambda: pool(session)._held)
        asking = [asyncio.ensure_future(use(session, value)) for value in (1, 2, 3)]
        await eventually(lambda: len(pool(session)._queue) == 3)
        asking[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking[1]
        go.set()
        await rebuilding
        assert await asking[0] == 2
        assert await asking[2] == 4


async def test_who_waits_for_pinned_memory_of_a_closing_session_is_told(books: Books) -> None:
    async with aioascend.Session(kit.add(2)) as other:  # keeps the device open
        session = aioascend.Session(kit.add(1), depth=2, max_waiting_bytes=0)
        await session.open()
        holders = [await held(session) for _ in range(2)]
        waiting = asyncio.ensure_future(held(session))
        await eventually(lambda: len(pool(session)._queue) == 1)
        closing = asyncio.ensure_future(session.aclose())
        with anyio.fail_after(10), pytest.raises(aioascend.SessionClosed):
            await waiting
        for holder in holders:
            await leave(holder)
        holders.clear()
        del holder
        gc.collect()
        await closing
        assert (await other.infer(ones(1)))[0][0] == 3
    await eventually(lambda: not aioascend.runtime.process.open_devices())
    books.assert_balanced()


@pytest.fixture
def books(emulator: Emulator) -> Books:
    return Books(emulator)


async def test_the_next_holder_gets_what_one_gives_back_unless_it_has_gone() -> None:
    async with aioascend.Session(kit.add(1), depth=2, max_waiting_bytes=0) as session:
        holders = [await held(session) for _ in range(2)]
        waiting = [asyncio.ensure_future(use(session, value)) for value in (1, 2, 3)]
        await eventually(lambda: len(pool(session)._queue) == 3)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        await leave(holders.pop())
        gc.collect()
        with anyio.fail_after(10):
            assert await asyncio.gather(*waiting[1:]) == [3, 4]
        await leave(holders.pop())


async def test_who_waits_when_memory_cannot_be_made_is_served_when_there_is_some(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1), depth=2, max_waiting_bytes=0) as session:
        holder = await held(session)
        go = block_control(session)
        asking = [asyncio.ensure_future(use(session, value)) for value in (1, 2, 3)]
        await eventually(lambda: len(pool(session)._queue) == 2)
        asking[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking[1]
        emulator.faults.fail("acl.rt.malloc_host", 507000)
        go.set()
        with anyio.fail_after(10):
            with pytest.raises(aioascend.AclError, match="507000"):
                await asking[0]
            assert await asking[2] == 4
        await leave(holder)


async def test_a_device_that_is_closed_has_no_idle_memory_and_nobody_to_leave_it() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        leases, pipeline = pool(session), inside(session)
        assert await use(session, 1) == 2
    leases.give_back_idle()
    leases.let_go(Lease())
    leases.arrays_dropped(Lease())
    pipeline._core.recovery.leave(pipeline)


async def test_who_asks_a_closing_session_for_memory_is_told(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(2)):  # keeps the device open
        session = aioascend.Session(kit.add(1))
        await session.open()
        leases = pool(session)
        await session.aclose()
        lease = Lease()
        leases.ask(lease)
        await lease.granted.wait()
        assert isinstance(lease.error, aioascend.SessionClosed)


async def test_pinned_memory_comes_back_when_the_handling_of_its_request_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with aioascend.Device("emulator:0"), aioascend.Session(kit.add(1)) as session:
        pipeline = inside(session)

        def interrupted(*args: Any) -> None:
            raise SystemExit("thrown into the thread")

        async with session.request() as request:
            request.inputs[0][:] = 1
            with monkeypatch.context() as patch, anyio.fail_after(20):
                patch.setattr(pipeline.admission, "offer", interrupted)
                with pytest.raises(aioascend.AclError, match="SystemExit"):
                    await request.run()
        del request
        await eventually(lambda: session.ready and not session.statistics().leased, seconds=20)
        assert (await session.infer(ones(1)))[0][0] == 2
