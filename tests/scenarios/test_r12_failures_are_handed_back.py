"""R12: every failing run raises at its own await and gives its place back; what a consumer raises kills no worker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import anyio
import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

GOOD, FAILS = np.array([1]), np.array([9])
ANSWER = np.array([11], np.float32)
WATCHDOG = 10.0


@pytest.mark.parametrize("depth, instances", [(1, 1), (3, 1), (2, 2)])
async def test_more_failures_than_places_one_after_another_and_all_at_once(
    standing, depth: int, instances: int
) -> None:
    count = depth * instances + 5
    async with (
        aioascend.Session(kit.out_of_bounds(), depth=depth, instances=instances) as session,
        standing(session, GOOD, ANSWER),
    ):
        with anyio.fail_after(3 * WATCHDOG):
            for _ in range(count):
                with pytest.raises(aioascend.ExecutionFailed) as caught:
                    await session.infer(FAILS)
                assert caught.value.code == 507011
                assert "idx=9" in caught.value.detail  # the device's own text
            results = await asyncio.gather(*(session.infer(FAILS) for _ in range(count)), return_exceptions=True)
            for result in results:
                assert isinstance(result, aioascend.ExecutionFailed)
                assert "idx=9" in result.detail
            mixed = [FAILS if i % 3 else GOOD for i in range(60)]
            results = await asyncio.gather(*(session.infer(x) for x in mixed), return_exceptions=True)
            for x, result in zip(mixed, results, strict=True):
                assert isinstance(result, aioascend.ExecutionFailed if x is FAILS else aioascend.Outputs)
            assert session.statistics().failed == 2 * count + 40


async def test_through_every_door(standing) -> None:
    async with aioascend.Session(kit.out_of_bounds()) as session, standing(session, GOOD, ANSWER):
        ticket = await session.submit(FAILS)
        for _ in range(2):  # each await of it
            with pytest.raises(aioascend.ExecutionFailed):
                await ticket
        async with session.request() as request:
            request.inputs["index"][:] = 9
            with pytest.raises(aioascend.ExecutionFailed):
                await request.run()
            request.inputs["index"][:] = 1
            assert (await request.run())[0].tolist() == [11]
        with pytest.raises(aioascend.ExecutionFailed):
            await asyncio.to_thread(session.infer_sync, FAILS)
        seen = []
        with pytest.raises(aioascend.ExecutionFailed):
            await collect(session.map([GOOD, FAILS, GOOD]), seen)
        assert seen == [11]


async def collect(results: AsyncIterator[aioascend.Outputs], seen: list[float]) -> None:
    async for outputs in results:
        seen.append(float(outputs[0][0]))  # noqa: PERF401  (what came before a failure must be kept)


@pytest.mark.parametrize("kind", [LookupError, asyncio.CancelledError])
async def test_what_a_consumer_raises_reaches_its_caller_once_and_nothing_else(
    standing, kind: type[BaseException]
) -> None:
    error = kind("the user's own")
    async with aioascend.Session(kit.out_of_bounds()) as session, standing(session, GOOD, ANSWER):
        with anyio.fail_after(WATCHDOG):

            async def consume() -> None:
                async for _ in session.map([GOOD] * 20):
                    raise error

            with pytest.raises(type(error), match="the user's own"):
                await consume()

            def source() -> object:
                yield GOOD
                raise error

            # before 3.11 asyncio passes a cancellation on as another one, without its text
            kept = kind is not asyncio.CancelledError or sys.version_info >= (3, 11)
            with pytest.raises(type(error), match="the user's own" if kept else None):
                await collect(session.map(source()), [])

            async def in_a_request() -> None:
                async with session.request():
                    raise error

            with pytest.raises(type(error), match="the user's own"):
                await in_a_request()

            class Raises:
                def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
                    raise error

            with pytest.raises((aioascend.InvalidInput, type(error)), match=r"the user's own|numpy cannot take"):
                await session.infer(Raises())


async def test_what_a_done_callback_raises_is_reported_once_and_harms_nobody(standing) -> None:
    loop = asyncio.get_running_loop()
    async with aioascend.Session(kit.out_of_bounds()) as session, standing(session, GOOD, ANSWER) as checks:

        def broken(task: asyncio.Task[object]) -> None:
            raise LookupError("in a callback")

        task = loop.create_task(session.infer(GOOD))
        task.add_done_callback(broken)
        others = await asyncio.gather(task, *(session.infer(GOOD) for _ in range(20)))
        assert len(others) == 21
        await asyncio.sleep(0)
        (complaint,) = checks.complaints
        assert isinstance(complaint["exception"], LookupError)
        checks.complaints.clear()


async def test_infer_from_within_what_consumes_its_results(standing) -> None:
    async with aioascend.Session(kit.out_of_bounds(), depth=1) as session, standing(session, GOOD, ANSWER):
        with anyio.fail_after(WATCHDOG):
            async for outputs in session.map([np.array([i]) for i in range(4)]):
                index = np.array([int(outputs[0][0]) - 10])
                assert (await session.infer(index))[0].tolist() == outputs[0].tolist()
            async with session.request() as request:
                request.inputs["index"][:] = 2
                assert (await session.infer(GOOD))[0].tolist() == [11]
                assert (await request.run())[0].tolist() == [12]

            chained: list[asyncio.Task[aioascend.Outputs]] = []
            first = asyncio.ensure_future(session.infer(GOOD))
            first.add_done_callback(lambda _: chained.append(asyncio.ensure_future(session.infer(GOOD))))
            await first
            await asyncio.sleep(0)
            assert (await chained[0])[0].tolist() == [11]
