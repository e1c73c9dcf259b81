"""Producers: `submit` and its ticket, and `map`."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import numpy as np
import pytest
import uvloop

import aioascend
from aioascend.emulator import Profile
from aioascend.mapping import map_ordered
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

SIZE = 1 << 19  # large enough to be copied by a worker
TAKES_TIME = pytest.mark.emulated(profile=Profile(compute_default=0.1))


def four(value: float) -> np.ndarray:
    return np.full(4, value, np.float32)


@pytest.mark.loops
async def test_after_submit_the_array_is_the_callers_again() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        x = four(0)
        tickets = []
        for value in range(50):
            x[:] = value
            tickets.append(await session.submit(x))
            x[:] = -1
        assert [(await ticket)[0][0] for ticket in tickets] == [value + 1 for value in range(50)]


@TAKES_TIME
async def test_submit_waits_where_infer_is_refused() -> None:
    async with aioascend.Session(kit.identity(1, (SIZE,)), max_waiting=0) as session:
        x = np.arange(SIZE, dtype=np.float32)
        tickets = await asyncio.gather(*(session.submit(x) for _ in range(7)))  # more than places and buffers
        with pytest.raises(aioascend.Overloaded, match="the queue is full: 0 requests wait"):
            await session.infer(x)
        for ticket in tickets:
            np.testing.assert_array_equal((await ticket)[0], x)
        assert session.statistics().refused == 1


@TAKES_TIME
async def test_a_full_queue_refuses_and_says_so() -> None:
    async with aioascend.Session(kit.identity(1, (SIZE,)), max_waiting=4) as session:
        x = np.arange(SIZE, dtype=np.float32)
        results = await asyncio.gather(*(session.infer(x) for _ in range(40)), return_exceptions=True)
        refused = [result for result in results if isinstance(result, aioascend.Overloaded)]
        answered = [result for result in results if not isinstance(result, BaseException)]
        assert len(refused) + len(answered) == 40
        assert refused
        assert len(answered) >= 4
        for outputs in answered:
            np.testing.assert_array_equal(outputs[0], x)
        assert session.statistics().refused == len(refused)


async def test_a_ticket_can_be_awaited_on_another_loop() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        ticket = await session.submit(four(4))

        async def elsewhere() -> float:
            return float((await ticket)[0][0])

        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == 5


async def test_a_cancelled_ticket_says_so_and_frees_its_place() -> None:
    async with aioascend.Session(kit.slow(20)) as session:
        x = np.eye(700, dtype=np.float32)
        tickets = [await session.submit(x) for _ in range(3)]
        for ticket in tickets:
            ticket.cancel()
        for ticket in tickets:
            with pytest.raises(asyncio.CancelledError):
                await ticket
        np.testing.assert_array_equal((await session.infer(x))[0], x)


async def test_cancelling_the_await_of_a_ticket_leaves_its_run_alone() -> None:
    async with aioascend.Session(kit.slow(20)) as session:
        x = np.eye(700, dtype=np.float32)
        ticket = await session.submit(x)
        waiting = asyncio.ensure_future(_await(ticket))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        np.testing.assert_array_equal((await ticket)[0], x)


async def _await(ticket: aioascend.Ticket) -> aioascend.Outputs:
    return await ticket


@pytest.mark.loops
async def test_map_keeps_the_order_of_plain_and_asynchronous_sources() -> None:
    async def frames() -> AsyncIterator[np.ndarray]:
        for value in range(60):
            await asyncio.sleep(0)
            yield four(value)

    async with aioascend.Session(kit.add(1)) as session:
        plain = [outputs[0][0] async for outputs in session.map(four(value) for value in range(60))]
        asynchronous = [outputs[0][0] async for outputs in session.map(frames())]
        assert plain == asynchronous == [value + 1 for value in range(60)]


async def test_map_yields_a_result_without_waiting_for_the_next_item() -> None:
    gate = asyncio.Event()

    async def slow_camera() -> AsyncIterator[np.ndarray]:
        yield four(1)
        await gate.wait()
        yield four(2)

    async with aioascend.Session(kit.add(1)) as session:
        results = session.map(slow_camera())
        with anyio.fail_after(10):
            assert (await anext(results))[0][0] == 2
            gate.set()
            assert (await anext(results))[0][0] == 3
            with pytest.raises(StopAsyncIteration):
                await anext(results)


async def test_map_reads_no_further_ahead_than_its_bound_while_the_consumer_rests() -> None:
    read = 0

    def source() -> Iterator[np.ndarray]:
        nonlocal read
        for value in range(1000):
            read += 1
            yield four(value)

    async with aioascend.Session(kit.add(1), depth=3) as session:
        results = session.map(source())
        await anext(results)
        await asyncio.sleep(0.1)
        assert read <= 3 + 2 + 2
        await results.aclose()  # type: ignore[attr-defined]


async def test_map_raises_the_failure_of_an_item_at_its_place() -> None:
    async with aioascend.Session(kit.out_of_bounds(), depth=1) as session:
        seen: list[float] = []
        with pytest.raises(aioascend.ExecutionFailed):
            await _collect(session.map(np.array([i]) for i in (0, 1, 9, 2, 3)), seen)
        assert seen == [10, 11]
        with pytest.raises(aioascend.InvalidInput):
            await _collect(session.map([np.array([3]), "nonsense"]), seen)
        assert seen == [10, 11, 13]


async def _collect(results: AsyncIterator[aioascend.Outputs], seen: list[float]) -> None:
    async for outputs in results:
        seen.append(float(outputs[0][0]))  # noqa: PERF401  (what came before a failure must be kept)


async def test_map_raises_what_its_source_raises_after_the_results_before_it() -> None:
    def source() -> Iterator[np.ndarray]:
        yield four(1)
        raise LookupError("the camera is gone")

    async with aioascend.Session(kit.add(1)) as session:
        seen: list[float] = []
        with pytest.raises(LookupError, match="the camera is gone"):
            await _collect(session.map(source()), seen)
        assert seen == [2]


async def test_leaving_a_map_early_leaves_nothing_running() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        async for _ in session.map(four(value) for value in range(100)):
            break
        await asyncio.sleep(0)
        assert (await session.infer(four(1)))[0][0] == 2
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "aioascend-map"] == []


async def test_map_refuses_what_is_no_iterable() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        with pytest.raises(aioascend.InvalidInput, match="map: wanted an iterable"):
            session.map(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8, 20])
def test_a_map_that_is_thrown_away_with_its_loop_says_nothing(
    turns: int, new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with aioascend.Session(kit.add(1)) as session:

        async def use() -> None:
            async for _ in session.map([np.full(4, i, np.float32) for i in range(50)]):
                pass

        async def main() -> None:
            task = asyncio.ensure_future(use())
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            for _ in range(turns):
                await asyncio.sleep(0)
            for other in asyncio.all_tasks():
                other._log_destroy_pending = False  # type: ignore[attr-defined]

        loop = new_loop()
        loop.run_until_complete(main())
        loop.close()
        del loop
        gc.collect()
        assert session.infer_sync(np.zeros(4, np.float32))[0].tolist() == [1] * 4
    assert not said


@pytest.mark.skipif(
    sys.version_info < (3, 13),
    reason="CPython before 3.13 does not end an asynchronous generator with the coroutine that waits for it",
)
def test_a_map_that_is_thrown_away_gives_up_its_runs_though_its_source_wants_to_wait_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # the source's own
    submitted: list[Any] = []
    tasks: list[Any] = []

    class Waits:
        def cancel(self) -> None:
            submitted.remove(self)

        def __await__(self) -> Any:
            yield from asyncio.get_running_loop().create_future()

    async def submit(_: object) -> Any:
        submitted.append(Waits())
        return submitted[-1]

    async def source() -> AsyncIterator[int]:
        try:
            for number in range(5):
                yield number
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)

    async def use() -> None:
        async for _ in map_ordered(submit, source(), 10):
            pass

    async def main() -> None:
        tasks.append(asyncio.ensure_future(use()))
        for _ in range(20):
            await asyncio.sleep(0)
        for other in asyncio.all_tasks():
            other._log_destroy_pending = False  # type: ignore[attr-defined]

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    assert len(submitted) == 5
    loop.close()
    tasks[0].get_coro().close()  # as the garbage collector does
    assert not submitted
    tasks.clear()
    gc.collect()
