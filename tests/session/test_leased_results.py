"""`outputs="leased"`: arrays over the pinned memory that the device wrote to, theirs until the last of them is gone."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from aioascend.errors import SessionClosed
from aioascend.runtime import process
from aioascend.runtime.pipeline import Pipeline
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
LARGE = 1 << 19  # elements: owned results of that size are copied by a worker


def inside(session: aioascend.Session) -> Pipeline:
    pipeline = session._pipeline
    assert pipeline is not None
    return pipeline


async def all_back(session: aioascend.Session) -> None:
    gc.collect()
    await eventually(lambda: session.statistics().leased_results == 0)


def over(array: np.ndarray) -> int:
    """Where the memory of an array begins."""
    return int(array.__array_interface__["data"][0])


@pytest.mark.loops
async def test_leased_results_are_right_and_lie_where_the_device_wrote_them() -> None:
    async with aioascend.Session(kit.pos()) as session:
        outlets = [over(view) for outlet in inside(session).lanes[0].outlets for view in outlet.views]
        for _ in range(3):
            outputs = await session.infer(X, outputs="leased")
            assert outputs.leased
            np.testing.assert_array_equal(outputs["y"], X * kit.POS_WEIGHT)
            outlets += [over(view) for outlet in inside(session).lanes[0].outlets for view in outlet.views]
            assert over(outputs["y"]) in outlets
            outputs["y"][:] = -1  # theirs to write to
            assert session.statistics().leased_results == 1
            del outputs
            await all_back(session)
        assert not (await session.infer(X)).leased


async def test_every_door_leases() -> None:
    async with aioascend.Session(kit.pos()) as session:
        ticket = await session.submit(X, outputs="leased")
        results = [await ticket, *[one async for one in session.map([X, X], outputs="leased")]]
        async with session.request() as request:
            request.inputs["x"][:] = X
            results.append(await request.run(outputs="leased"))
        results.append(await asyncio.to_thread(lambda: session.infer_sync(X, outputs="leased")))
        for outputs in results:
            assert outputs.leased
            np.testing.assert_array_equal(outputs[0], X * kit.POS_WEIGHT)
        with pytest.raises(aioascend.InvalidInput, match='wanted "owned", "leased" or "device", given \'lent\''):
            await session.infer(X, outputs="lent")  # type: ignore[call-overload]
        with pytest.raises(aioascend.InvalidInput, match="outputs: wanted"):
            session.map([X], outputs=None)  # type: ignore[call-overload]
        with pytest.raises(aioascend.InvalidInput, match="leave the device"):
            assert not ticket.tensors
        results.clear()
        del ticket, outputs, request
        await all_back(session)


async def test_several_outputs_share_the_lease_and_a_part_of_one_keeps_it() -> None:
    async with aioascend.Session(kit.several(), depth=1) as session:
        given = {"a": np.ones((2, 3), np.float32), "k": np.int64(2)}
        outputs = await session.infer(given, outputs="leased")
        part = outputs["ints"][1:3].reshape(2, 1)
        expected = part.copy()
        del outputs
        gc.collect()
        for value in range(20):
            await session.infer({"a": given["a"], "k": np.int64(value)}, outputs="leased")
        np.testing.assert_array_equal(part, expected)
        await eventually(lambda: session.statistics().leased_results == 1)
        del part
        await all_back(session)


@pytest.mark.loops
async def test_what_was_awaited_never_changes_whatever_is_kept_or_dropped() -> None:
    rng = np.random.default_rng(7)
    async with aioascend.Session(kit.pos(), depth=2) as session:
        kept: dict[int, Any] = {}

        async def one(value: int) -> None:
            outputs = await session.infer(X + value, outputs="leased" if value % 3 else "owned")
            kept[value] = outputs
            if rng.random() < 0.6:
                kept.pop(int(rng.choice(list(kept))), None)

        for start in range(0, 200, 8):
            await asyncio.gather(*(one(value) for value in range(start, start + 8)))
            for value, outputs in kept.items():
                np.testing.assert_array_equal(outputs[0], (X + value) * kit.POS_WEIGHT)
        assert session.statistics().leased_results <= 4
        kept.clear()
        del outputs
        await all_back(session)


async def test_kept_results_starve_nobody_and_dropped_ones_serve_again() -> None:
    async with aioascend.Session(kit.pos(), depth=1) as session:
        with anyio.fail_after(20):
            kept = [await session.infer(X + value, outputs="leased") for value in range(20)]
            assert [outputs.leased for outputs in kept] == [True] * 2 + [False] * 18
            await asyncio.gather(*(session.infer(X) for _ in range(20)))
        for value, outputs in enumerate(kept):
            np.testing.assert_array_equal(outputs[0], (X + value) * kit.POS_WEIGHT)
        del kept[0], outputs
        gc.collect()
        await eventually(lambda: session.statistics().leased_results == 1)
        assert (await session.infer(X, outputs="leased")).leased


async def test_nothing_is_allocated_where_a_buffer_is_back(emulator: Emulator) -> None:
    made = count(emulator, "malloc_host")
    async with aioascend.Session(kit.pos(), depth=1) as session:
        await session.infer(X, outputs="leased")
        await all_back(session)
        before = made()
        for _ in range(20):
            await session.infer(X, outputs="leased")
            await all_back(session)
        assert made() == before


def count(emulator: Emulator, name: str) -> Callable[[], int]:
    calls, call = [0], getattr(emulator.acl.rt, name)

    def counted(*args: Any) -> Any:
        calls[0] += 1
        return call(*args)

    setattr(emulator.acl.rt, name, counted)
    return lambda: calls[0]


async def test_large_results_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Session(kit.add(1, LARGE)) as session:
        monkeypatch.setattr(session._pipeline, "_copy_out_elsewhere", None)
        outputs = await session.infer(np.zeros(LARGE, np.float32), outputs="leased")
        assert (outputs[0] == 1).all()


async def test_without_pinned_memory_results_are_copied(emulator: Emulator) -> None:
    async with aioascend.Session(kit.pos()) as session:
        emulator.faults.fail("acl.rt.malloc_host", 207001, times=4)
        outputs = await session.infer(X, outputs="leased")
        assert not outputs.leased
        np.testing.assert_array_equal(outputs[0], X * kit.POS_WEIGHT)
        assert (await session.infer(X, outputs="leased")).leased


async def test_idle_buffers_are_given_back_when_memory_runs_short(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.pos()) as session:
        await session.infer(X, outputs="leased")
        await all_back(session)
        assert len(inside(session).pinned_spares.idle) == 1
        emulator.faults.fail("acl.rt.malloc", 207001, times=2)
        await device.malloc(1 << 20)
        assert not inside(session).pinned_spares.idle
        assert (await session.infer(X, outputs="leased")).leased


async def test_failed_and_given_up_requests_lease_nothing() -> None:
    async with aioascend.Session(kit.out_of_bounds(), depth=1) as session:
        for _ in range(5):
            with pytest.raises(aioascend.ExecutionFailed):
                await session.infer(np.array([9]), outputs="leased")
            running = asyncio.ensure_future(session.infer(np.array([1]), outputs="leased"))
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert (await session.infer(np.array([2]), outputs="leased"))[0][0] == 12
        await all_back(session)
        assert inside(session).pinned_spares.promised == 0


async def test_arrays_outlive_their_session_which_says_nothing_and_closes_with_them(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "aioascend"):
        async with aioascend.Session(kit.pos()) as session:
            outputs = await session.infer(X, outputs="leased")
            async with session.request() as request:
                inputs = request.inputs["x"]
                inputs[:] = 3
        del request
        await asyncio.sleep(0.01)
        np.testing.assert_array_equal(outputs[0], X * kit.POS_WEIGHT)
        assert process.open_devices()  # where the memory can be given back
        del inputs  # one of two
        gc.collect()
        await asyncio.sleep(0.01)
        assert process.open_devices()
        del outputs
        gc.collect()
        await eventually(lambda: not emulator.threads)
    assert [str(leak) for leak in emulator.report().leaks if leak.kind != "init"] == []


async def test_arrays_that_are_dropped_while_their_session_closes_are_given_back(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aioascend.Session(kit.pos()) as session:
        kept = [await session.infer(X, outputs="leased") for _ in range(2)]
        spares = inside(session).pinned_spares
        close = spares.close

        def drop_then() -> None:
            close()
            kept.clear()
            gc.collect()

        monkeypatch.setattr(spares, "close", drop_then)
    await eventually(lambda: not emulator.threads)
    assert [str(leak) for leak in emulator.report().leaks if leak.kind != "init"] == []


async def test_arrays_outlive_a_rebuild(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.pos(), depth=1) as session:
        kept = [await session.infer(X + value, outputs="leased") for value in range(2)]
        first = await session.infer(X, outputs="leased")
        assert not first.leased
        kept.append(first)
        await device.rebuild()
        kept += [await session.infer(X + value, outputs="leased") for value in range(3)]
        for value, outputs in enumerate([*kept[:2], *kept[3:]]):
            np.testing.assert_array_equal(outputs[0], (X + value % 2 + (value == 4) * 2) * kit.POS_WEIGHT)
        kept.clear()
        del outputs, first
        await all_back(session)
        await device.rebuild()  # with a spare of the present context idle
        outputs = await session.infer(X, outputs="leased")
        assert outputs.leased
    del outputs, kept
    gc.collect()
    await eventually(lambda: not emulator.threads)
    assert [str(leak) for leak in emulator.report().leaks if leak.kind != "init"] == []


async def test_arrays_that_a_forked_child_drops_are_the_parents() -> None:
    async with aioascend.Session(kit.pos()) as session:
        outputs = await session.infer(X, outputs="leased")
        child = os.fork()
        if child == 0:
            try:
                del outputs
                gc.collect()
            finally:
                os._exit(0)
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        assert session.statistics().leased_results == 1
        np.testing.assert_array_equal(outputs[0], X * kit.POS_WEIGHT)


async def test_what_is_dropped_when_nobody_is_left_is_dropped_quietly() -> None:
    async with aioascend.Session(kit.pos()) as session:
        spares = inside(session).pinned_spares
        outputs = await session.infer(X, outputs="leased")

        def closed(*_: Any) -> None:
            raise SessionClosed("the device is closed")

        core, post = spares._core, spares._core.post
        core.post = closed  # type: ignore[method-assign]
        outlet = outputs[0]
        del outputs
        spares._dropped(None)  # type: ignore[arg-type]
        core.post = post  # type: ignore[method-assign]
        del outlet
        await all_back(session)
