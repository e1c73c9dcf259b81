"""What fails on the device fails its own request, with the device's text, and never hands out earlier bytes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from aioascend.runtime.request import Request
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")


def at(*indices: int) -> np.ndarray:
    return np.array(indices, np.int64)


@pytest.mark.loops
async def test_a_failing_run_raises_for_its_caller_and_the_next_is_right() -> None:
    async with aioascend.Session(kit.out_of_bounds()) as session:
        assert (await session.infer(at(1)))[0].tolist() == [11]
        with pytest.raises(aioascend.ExecutionFailed) as caught:
            await session.infer(at(9))
        assert caught.value.code == 507011
        assert caught.value.name == "ACL_ERROR_RT_MODEL_EXECUTE"
        assert caught.value.device == "emulator:0"
        assert "idx=9" in caught.value.detail
        assert (await session.infer(at(2)))[0].tolist() == [12]
        assert session.statistics().failed == 1


@pytest.mark.loops
@pytest.mark.parametrize("depth,instances", [(1, 1), (3, 1), (4, 2)])
async def test_among_concurrent_requests_each_gets_its_own_outcome(depth: int, instances: int) -> None:
    async with aioascend.Session(kit.out_of_bounds(), depth=depth, instances=instances) as session:
        indices = [9 if i % 7 == 0 else i % 4 for i in range(140)]
        results = await asyncio.gather(*(session.infer(at(i)) for i in indices), return_exceptions=True)
        for index, result in zip(indices, results, strict=True):
            if index == 9:
                assert isinstance(result, aioascend.ExecutionFailed)
                assert "idx=9" in result.detail
            else:
                assert not isinstance(result, BaseException)
                assert result[0].tolist() == [10 + index]
        now = session.statistics()
        assert (now.completed, now.failed) == (120, 20)
        assert (now.repeated > 0) == (depth > 1)  # with one place there is no doubt whose failure it is
        assert (await session.infer(at(3)))[0].tolist() == [13]


async def test_tickets_and_pinned_requests_get_their_own_outcome_too() -> None:
    async with aioascend.Session(kit.out_of_bounds()) as session:

        async def pinned(index: int) -> aioascend.Outputs:
            async with session.request() as request:
                request.inputs["index"][:] = index
                return await request.run()

        async def ticket(index: int) -> aioascend.Outputs:
            x = at(index)
            waiting = await session.submit(x)
            x[:] = 0  # a repeated run must not read it again
            return await waiting

        cases = [(pinned if i % 2 else ticket, 9 if i % 5 == 0 else i % 4) for i in range(60)]
        results = await asyncio.gather(*(door(index) for door, index in cases), return_exceptions=True)
        for (_, index), result in zip(cases, results, strict=True):
            if index == 9:
                assert isinstance(result, aioascend.ExecutionFailed)
            else:
                assert not isinstance(result, BaseException)
                assert result[0].tolist() == [10 + index]


async def test_a_failure_that_cannot_be_told_apart_by_repeating_is_given_to_all_it_may_belong_to(
    emulator: Emulator,
) -> None:
    """A copy that fails leaves nothing to repeat from; the message says why several requests got it."""
    async with aioascend.Session(kit.add(1)) as session:
        queries = 0
        query = emulator.acl.rt.stream_query

        def failing_once(stream: int) -> tuple[int, int]:
            nonlocal queries
            queries += 1
            return (0, 507013) if queries == 4 else query(stream)

        emulator.acl.rt.stream_query = failing_once
        results = await asyncio.gather(
            *(session.infer(np.full(4, i, np.float32)) for i in range(40)), return_exceptions=True
        )
        failed = [result for result in results if isinstance(result, aioascend.ExecutionFailed)]
        assert failed
        assert all(error.code == 507013 for error in failed)
        for i, result in enumerate(results):
            if not isinstance(result, BaseException):
                assert result[0].tolist() == [i + 1] * 4


async def test_a_failure_of_another_session_on_the_same_device_is_not_ours() -> None:
    async with aioascend.Session(kit.out_of_bounds()) as bad, aioascend.Session(kit.add(1)) as good:
        failing = [bad.infer(at(9)) for _ in range(20)]
        working = [good.infer(np.full(4, i, np.float32)) for i in range(20)]
        results = await asyncio.gather(*failing, *working, return_exceptions=True)
        assert all(isinstance(result, aioascend.ExecutionFailed) for result in results[:20])
        assert [result[0][0] for result in results[20:]] == [i + 1 for i in range(20)]  # type: ignore[index]


@pytest.mark.parametrize(
    "way", ["infer", "with a limit", "infer_sync", "pinned", "ticket", "map", "map of a wrong input"]
)
async def test_a_failure_that_was_handled_keeps_nothing_of_its_caller(way: str) -> None:
    """No cycle through the traceback: what the caller's frames hold is gone at once, not when the collector comes."""

    class Held:
        pass

    async def caller(session: aioascend.Session) -> weakref.ref[Held]:
        held = Held()
        with contextlib.suppress(aioascend.ExecutionFailed, aioascend.InvalidInput):
            if way == "infer_sync":
                await asyncio.to_thread(session.infer_sync, at(9))
            elif way == "pinned":
                async with session.request() as request:
                    request.inputs["index"][:] = 9
                    await request.run()
            elif way == "ticket":
                await (await session.submit(at(9)))
            elif way.startswith("map"):
                async for _ in session.map([at(9) if way == "map" else "no"]):
                    pass
            else:
                await session.infer(at(9), timeout=20 if way == "with a limit" else None)
            raise AssertionError("it was answered")
        return weakref.ref(held)

    async with aioascend.Session(kit.out_of_bounds()) as session:
        gc.collect()
        gc.disable()
        try:
            gone = await asyncio.ensure_future(caller(session))
            await eventually(lambda: gone() is None)
            await eventually(lambda: not any(isinstance(one, Request) for one in gc.get_objects()))
        finally:
            gc.enable()


async def test_a_ticket_that_is_awaited_again_and_again_keeps_none_of_those_who_did() -> None:
    async with aioascend.Session(kit.out_of_bounds()) as session:
        ticket = await session.submit(at(9))
        depths = []
        for _ in range(5):
            with pytest.raises(aioascend.ExecutionFailed) as caught:
                await ticket
            depths.append(len(caught.traceback))
        assert len(set(depths)) == 1
