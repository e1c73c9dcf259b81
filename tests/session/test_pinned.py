"""`session.request()`: pinned memory that the caller writes into."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.runtime import process
from aioascend.runtime.request import Request
from aioascend.waiting import run_request
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


@pytest.mark.loops
async def test_what_is_written_into_pinned_memory_is_what_runs() -> None:
    async with aioascend.Session(kit.pos()) as session:
        async with session.request() as request:
            for offset in range(3):
                request.inputs["x"][:] = X + offset
                outputs = await request.run()
                np.testing.assert_array_equal(outputs["y"], (X + offset) * kit.POS_WEIGHT)
        await eventually(lambda: session.statistics().leased == 0)


async def test_inputs_by_name_by_index_and_what_there_are() -> None:
    async with aioascend.Session(kit.several()) as session, session.request() as request:
        assert list(request.inputs) == ["a", "k"]
        request.inputs[0][...] = 1
        request.inputs["k"][...] = 2
        assert (await request.run())["ints"].tolist() == [2, 3, 4, 5, 6]
        with pytest.raises(KeyError, match="no input is named 'b'; there are a, k"):
            request.inputs["b"]
        with pytest.raises(TypeError, match=r"write into the memory with inputs\['a'\]\[...\] = value"):
            request.inputs["a"] = 3  # type: ignore[index]


async def test_a_request_that_was_left_fails_loudly() -> None:
    async with aioascend.Session(kit.pos()) as session:
        request = session.request()
        with pytest.raises(aioascend.StaleLease):
            request.inputs["x"]
        async with request:
            inputs = request.inputs
        with pytest.raises(aioascend.StaleLease):
            inputs["x"]
        with pytest.raises(aioascend.StaleLease):
            await request.run()
        with pytest.raises(aioascend.StaleLease):
            async with request:
                pass


async def test_a_buffer_somebody_still_sees_is_not_handed_on() -> None:
    async with aioascend.Session(kit.pos(), depth=1) as session:  # two pinned buffers for callers
        async with session.request() as request:
            kept = request.inputs["x"]
            kept[:] = 7
        for value in range(4):
            async with session.request() as other:
                other.inputs["x"][:] = value
                np.testing.assert_array_equal((await other.run())[0], value * kit.POS_WEIGHT[None])
        assert (kept == 7).all()
        await eventually(lambda: session.statistics().leased == 1)
        del kept, request
        gc.collect()
        await eventually(lambda: session.statistics().leased == 0)


async def test_past_every_bound_holders_wait_for_their_turn_and_hold_up_nobody_else() -> None:
    async with aioascend.Session(kit.pos(), depth=1, max_waiting_bytes=X.nbytes) as session:
        async with session.request(), session.request(), session.request() as last:
            assert not last.pinned
            third = asyncio.ensure_future(_run(session))
            await asyncio.sleep(0.02)
            assert not third.done()
            np.testing.assert_array_equal((await session.infer(X))[0], X * kit.POS_WEIGHT)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_run(session), 0.02)  # a timed-out one fails alone
        np.testing.assert_array_equal(await third, X * kit.POS_WEIGHT)
        async with session.request(), session.request(), session.request() as last:
            assert not last.pinned  # ordinary memory that was given back is lent again


@pytest.mark.loops
async def test_idle_holders_starve_nobody() -> None:
    """Many cameras, each in a request of its own for as long as it runs, and only one has a frame."""
    async with aioascend.Session(kit.pos(), depth=2) as session, contextlib.AsyncExitStack() as stack:
        holders = [await stack.enter_async_context(session.request()) for _ in range(40)]
        assert [holder.pinned for holder in holders] == [True] * 2 + [False] * 38
        assert session.statistics().leased == 2
        for value, holder in enumerate(holders):
            holder.inputs["x"][:] = value
        for value, holder in enumerate(holders):
            np.testing.assert_array_equal((await holder.run())[0], value * kit.POS_WEIGHT[None])
            np.testing.assert_array_equal(await _run(session), X * kit.POS_WEIGHT)
        np.testing.assert_array_equal((await session.infer(X))[0], X * kit.POS_WEIGHT)
        np.testing.assert_array_equal((await (await session.submit(X)))[0], X * kit.POS_WEIGHT)
        async for outputs in session.map([X] * 10):
            np.testing.assert_array_equal(outputs[0], X * kit.POS_WEIGHT)


async def test_kept_arrays_starve_nobody() -> None:
    async with aioascend.Session(kit.pos(), depth=1) as session:
        kept = []
        for value in range(10):
            async with session.request() as request:
                request.inputs["x"][:] = value
                await request.run()
                kept.append(request.inputs["x"])
            np.testing.assert_array_equal((await session.infer(X))[0], X * kit.POS_WEIGHT)
        assert [array[0, 0, 0, 0] for array in kept] == list(range(10))
        del kept[1], request
        gc.collect()
        await eventually(lambda: session.statistics().leased == 1)
        async with session.request() as request:
            assert request.pinned  # what was dropped serves again


async def test_memory_that_was_given_back_is_not_run_from() -> None:
    """Threads that race for one request: what one of them leaves, the other must not run from."""
    async with aioascend.Session(kit.pos(), depth=1) as session:
        pipeline = session._usable()
        for pinned in (True, False):
            async with contextlib.AsyncExitStack() as others:
                if not pinned:
                    for _ in range(2):
                        await others.enter_async_context(session.request())
                async with session.request() as request:
                    assert request.pinned is pinned
                    lease = request._lease
                    late = Request([] if pinned else [X], patient=False, lease=lease)
                async with session.request():  # the next holder of that memory
                    with pytest.raises(aioascend.StaleLease, match="given back"):
                        await run_request(pipeline, late)
        np.testing.assert_array_equal(await _run(session), X * kit.POS_WEIGHT)


@pytest.mark.logs_errors
async def test_a_completion_of_a_run_that_is_over_fails_loudly(caplog: pytest.LogCaptureFixture) -> None:
    async with aioascend.Session(kit.pos(), depth=1) as session:
        core = session._core
        assert core is not None
        seen = []
        arm = core.arm

        def noting(stream: int, then: Callable[[Any], None]) -> None:
            seen.append(then)
            arm(stream, then)

        core.arm = noting  # type: ignore[method-assign]
        await session.infer(X)
        running = asyncio.ensure_future(session.infer(2 * X))
        core.post(seen[0], None)  # a second time
        np.testing.assert_array_equal((await running)[0], 2 * X * kit.POS_WEIGHT)
        await eventually(lambda: "a completion of run 0 of a place came in its run 1" in caplog.text)
        np.testing.assert_array_equal((await session.infer(X))[0], X * kit.POS_WEIGHT)


async def _run(session: aioascend.Session) -> np.ndarray:
    async with session.request() as request:
        request.inputs["x"][:] = X
        return (await request.run())[0]


async def test_a_cancelled_run_keeps_its_memory_until_the_device_has_read_it() -> None:
    async with aioascend.Session(kit.slow(40), depth=1) as session:
        x = np.eye(700, dtype=np.float32)
        async with session.request() as request:
            request.inputs["x"][:] = x
            with pytest.raises(aioascend.DeadlineExceeded):
                await request.run(timeout=0.02)
        async with session.request() as request:
            request.inputs["x"][:] = 2 * x
            np.testing.assert_array_equal((await request.run())[0], 2 * x)


async def test_giving_up_the_wait_for_a_buffer_loses_none() -> None:
    async with aioascend.Session(kit.pos(), depth=1) as session:
        async with session.request(), session.request():
            for _ in range(10):
                waiting = asyncio.ensure_future(_run(session))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
        async with session.request(), session.request():
            pass


async def test_a_close_with_arrays_alive_says_what_stays_and_gives_it_back_later(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "aioascend"):
        async with aioascend.Session(kit.pos()) as session, session.request() as request:
            kept = request.inputs["x"]
            kept[:] = 3
    assert "1 pinned input buffer of a closed session stays allocated, and the device open, while arrays" in caplog.text
    assert (kept == 3).all()
    with pytest.raises(aioascend.SessionClosed):
        async with session.request():
            pass
    assert process.open_devices()  # where the memory can be given back
    with pytest.raises(aioascend.AioascendError, match="close every session first"):
        aioascend.shutdown()
    del kept, request
    gc.collect()
    await eventually(lambda: not emulator.threads)
    assert not process.open_devices()
    assert [str(leak) for leak in emulator.report().leaks if leak.kind != "init"] == []


@pytest.mark.emulated(profile=Profile(compute_default=0.05))
async def test_a_frame_is_written_while_the_one_before_computes() -> None:
    """Every frame but the first is written while another one is on the device, and none is changed by it."""
    async with aioascend.Session(kit.pos(), depth=3) as session:
        under_way: list[asyncio.Future[Any]] = []
        overlapped = 0

        for number in range(6):
            request = session.request()
            await request.__aenter__()
            await eventually(lambda: sum(not one.done() for one in under_way) <= 1)
            before = session.statistics().running
            for row in range(2):
                request.inputs["x"][0, row] = number
            overlapped += bool(before and session.statistics().running)
            assert request.pinned

            async def finish(request: Any = request) -> Any:
                try:
                    return await request.run()
                finally:
                    await request.__aexit__(None, None, None)

            under_way.append(asyncio.ensure_future(finish()))
            await eventually(lambda: session.statistics().running > 0)
        for number, outputs in enumerate(await asyncio.gather(*under_way)):
            np.testing.assert_array_equal(outputs[0], number * kit.POS_WEIGHT[None])
        assert overlapped >= 4
