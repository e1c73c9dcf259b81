"""Cancels at every point where a call waits, and at random moments: nothing is lost, and nobody else notices."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import aioascend
from aioascend.runtime.ports import current_port
from aioascend.runtime.request import Request
from tests import kit
from tests.stepping import cancelled_at, every_cancel
from tests.waiting import eventually

pytestmark = [
    pytest.mark.usefixtures("emulator", "completion"),
    pytest.mark.parametrize("completion", ["callback", "event"], indirect=True),
]

LARGE = (1 << 20) + 8  # floats: 4 MiB, more than is copied on the device thread, in more than one piece


def four(value: float) -> np.ndarray:
    return np.full(4, value, np.float32)


def at_rest(session: aioascend.Session) -> bool:
    now = session.statistics()
    return (now.waiting, now.waiting_bytes, now.staging, now.running, now.draining, now.leased) == (0,) * 6


async def assert_unharmed(session: aioascend.Session, x: np.ndarray, y: np.ndarray) -> None:
    np.testing.assert_array_equal((await session.infer(x))[0], y)
    await eventually(lambda: at_rest(session))
    gc.collect()
    _, port = current_port()
    assert not port._deadlines
    assert port._timer is None


async def infer(session: aioascend.Session, x: np.ndarray) -> Any:
    return (await session.infer(x))[0]


async def infer_with_limit(session: aioascend.Session, x: np.ndarray) -> Any:
    return (await session.infer(x, timeout=60))[0]


async def submit(session: aioascend.Session, x: np.ndarray) -> Any:
    ticket = await session.submit(x)
    try:
        return (await ticket)[0]
    except asyncio.CancelledError:
        ticket.cancel()
        raise


async def write_and_run(session: aioascend.Session, x: np.ndarray) -> Any:
    async with session.request() as request:
        request.inputs[0][:] = x
        return (await request.run())[0]


async def map_some(session: aioascend.Session, x: np.ndarray) -> Any:
    async def source() -> AsyncIterator[np.ndarray]:
        for _ in range(3):
            await asyncio.sleep(0)
            yield x

    return [outputs[0] async for outputs in session.map(source())][-1]


Call = Callable[[aioascend.Session, np.ndarray], Coroutine[Any, Any, Any]]
CALLS: list[Call] = [infer, infer_with_limit, submit, write_and_run, map_some]


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_may_be_cancelled_wherever_it_waits(call: Call) -> None:
    async with aioascend.Session(kit.add(1), depth=1) as session:
        outcomes = await every_cancel(lambda: call(session, four(4)))
        assert isinstance(outcomes[0][1], asyncio.CancelledError)
        for _, outcome in outcomes:
            assert isinstance(outcome, asyncio.CancelledError) or outcome.tolist() == [5] * 4
        assert outcomes[-1][1].tolist() == [5] * 4  # the last was not reached by its cancel
        await assert_unharmed(session, four(1), four(2))


@pytest.mark.parametrize("call", [infer, submit, map_some])
async def test_also_while_a_large_array_is_being_copied(call: Call) -> None:
    x = np.ones((LARGE, 2), np.float32)[:, 0]
    async with aioascend.Session(kit.identity(TensorProto.FLOAT, (LARGE,)), depth=1) as session:
        outcomes = await every_cancel(lambda: call(session, x))
        for _, outcome in outcomes:
            assert isinstance(outcome, asyncio.CancelledError) or np.array_equal(outcome, x)
        await assert_unharmed(session, x, x)


@pytest.mark.parametrize("call", CALLS)
async def test_also_while_it_waits_behind_others(call: Call) -> None:
    eye = np.eye(300, dtype=np.float32)
    async with aioascend.Session(kit.slow(10, 300), depth=1) as session:

        async def behind() -> Any:
            busy = [asyncio.ensure_future(session.infer(eye)) for _ in range(4)]
            await asyncio.sleep(0)
            try:
                return await call(session, 2 * eye)
            finally:
                # These have to be right whatever becomes of the call: awaited where no cancel reaches.
                answers.extend(busy)

        answers: list[asyncio.Future[aioascend.Outputs]] = []
        outcomes = await every_cancel(behind)
        for _, outcome in outcomes:
            assert isinstance(outcome, asyncio.CancelledError) or np.array_equal(outcome, 2 * eye)
        for answer in await asyncio.gather(*answers):
            np.testing.assert_array_equal(answer[0], eye)
        await assert_unharmed(session, eye, eye)


async def test_an_open_may_be_cancelled_wherever_it_waits() -> None:
    async def open_and_use() -> float:
        async with aioascend.Session(kit.add(1), warmup=1) as session:
            return float((await session.infer(four(1)))[0][0])

    for at, outcome in await every_cancel(open_and_use):
        assert isinstance(outcome, asyncio.CancelledError) or outcome == 2, at


async def test_a_close_may_be_cancelled_wherever_it_waits_and_goes_on() -> None:
    for drain in (True, False):
        for k in range(1, 10):
            session = aioascend.Session(kit.slow(10, 300))
            await session.open()
            eye = np.eye(300, dtype=np.float32)
            tickets = [await session.submit(eye) for _ in range(3)]
            _, suspensions = await cancelled_at({k}, session.aclose(drain=drain))
            await session.aclose()
            for ticket in tickets:
                try:
                    np.testing.assert_array_equal((await ticket)[0], eye)
                except aioascend.SessionClosed:
                    assert not drain
            if suspensions < k:
                break
        else:
            raise AssertionError("it still waits")


async def test_200_cancels_at_random_moments_of_a_run() -> None:
    chance = random.Random(19)
    eye = np.eye(300, dtype=np.float32)
    async with aioascend.Session(kit.slow(6, 300), depth=2) as session:
        for value in range(200):
            tasks = [asyncio.create_task(session.infer(number * eye)) for number in (value, value + 0.5)]
            await asyncio.sleep(chance.random() * 0.01)
            if chance.random() < 0.1:
                await asyncio.sleep(0.005)  # the moment of completion
            tasks[0].cancel()
            outcome, other = await asyncio.gather(*tasks, return_exceptions=True)
            assert not isinstance(other, BaseException)
            np.testing.assert_array_equal(other[0], (value + 0.5) * eye)
            if not isinstance(outcome, asyncio.CancelledError):
                np.testing.assert_array_equal(outcome[0], value * eye)
        await assert_unharmed(session, eye, eye)
        now = session.statistics()
        assert now.completed + now.cancelled == 401
        assert now.cancelled > 20


async def test_cancels_among_many_short_requests() -> None:
    chance = random.Random(7)
    async with aioascend.Session(kit.add(1), depth=2) as session:

        async def one(value: int) -> None:
            task = asyncio.create_task(infer(session, four(value)))
            await asyncio.sleep(chance.random() * 0.004)
            if chance.random() < 0.5:
                task.cancel()
            try:
                assert (await task).tolist() == [value + 1] * 4
            except asyncio.CancelledError:
                pass

        for start in range(0, 400, 20):
            await asyncio.gather(*(one(value) for value in range(start, start + 20)))
        await assert_unharmed(session, four(1), four(2))


async def test_a_copy_that_was_stopped_half_way_never_runs() -> None:
    """Its caller gave it up while it was copied, and the withdrawal comes after the end of the copy."""
    async with aioascend.Session(kit.identity(TensorProto.FLOAT, (LARGE,)), depth=1) as session:
        pipeline = session._usable()
        copy = pipeline._core.copy

        def given_up_meanwhile(function: Callable[..., Any], request: Request, *args: Any) -> Any:
            request.abandoned = True
            return copy(function, request, *args)

        pipeline._core.copy = given_up_meanwhile  # type: ignore[method-assign]
        launched: list[Request] = []
        pipeline.lanes[0].launch = launched.append  # type: ignore[method-assign]
        request = Request([np.ones(LARGE, np.float32)], patient=False)
        pipeline.submit(request)
        await asyncio.wait_for(request.done.wait(), 10)
        assert launched == []
        assert session.statistics().cancelled == 1
        assert at_rest(session)


def test_a_loop_may_end_before_the_device_has_finished() -> None:
    """`asyncio.run` cancels what its main left behind, closes the loop, and the results come after that."""
    eye = np.eye(300, dtype=np.float32)
    with aioascend.Session(kit.slow(20, 300)) as session:

        async def leave(limit: float | None) -> None:
            leftovers.extend(asyncio.ensure_future(session.infer(eye, timeout=limit)) for _ in range(5))
            await asyncio.sleep(0.005)

        leftovers: list[asyncio.Future[Any]] = []
        for limit in (None, 60):
            asyncio.run(leave(limit))
            assert all(left.cancelled() for left in leftovers)
            np.testing.assert_array_equal(session.infer_sync(eye)[0], eye)


def test_a_loop_may_be_closed_under_its_tasks() -> None:
    """Nothing was cancelled: the loop is gone, its tasks hang in the air, and the device finishes all the same."""
    eye = np.eye(300, dtype=np.float32)
    with aioascend.Session(kit.slow(20, 300), depth=1) as session:
        for limit in (None, 60):
            loop = asyncio.new_event_loop()
            tasks = [loop.create_task(session.infer(eye, timeout=limit)) for _ in range(5)]
            loop.run_until_complete(asyncio.sleep(0.01))
            loop.close()
            for task in tasks:
                task._log_destroy_pending = False  # the user's doing, and reported as such by asyncio
            np.testing.assert_array_equal(session.infer_sync(eye)[0], eye)
            gone = weakref.ref(loop)
            del loop, task, tasks
            gc.collect()
            np.testing.assert_array_equal(session.infer_sync(eye)[0], eye)
            gc.collect()
            assert gone() is None, "something keeps a closed loop alive"
