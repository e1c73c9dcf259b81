"""Brief runs that are launched together share events, and each request has its own outcome as ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from aioascend.errors import AclError
from aioascend.runtime.lane import Lane
from tests import kit
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("emulator", "probed_soon")]

N = 6


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every lane takes its runs for brief ones, from its first on."""
    made = Lane.__init__

    def init(self: Lane, *args: Any) -> None:
        made(self, *args)
        self._most_unarmed = 100

    monkeypatch.setattr(Lane, "__init__", init)
    monkeypatch.setattr(Lane, "_learn", lambda self, seconds: None)


def row(number: float) -> np.ndarray:
    return np.full(4, number, np.float32)


async def together(session: aioascend.Session, count: int = N) -> list[Any]:
    """Requests that are launched by one decision: their outcomes."""
    tasks = [asyncio.ensure_future(session.infer(row(number))) for number in range(count)]
    return await asyncio.gather(*tasks, return_exceptions=True)


def right(results: list[Any]) -> list[bool]:
    """Which of them are there; those have to be right."""
    for number, result in enumerate(results):
        if isinstance(result, aioascend.Outputs):
            np.testing.assert_array_equal(result[0], row(number + 1))
        else:
            assert isinstance(result, AclError), result
    return [isinstance(result, aioascend.Outputs) for result in results]


def all_back(session: aioascend.Session) -> bool:
    pipeline = session._usable()
    return pipeline.admission.idle and all(
        len(lane._free) == len(lane.places) and len(lane.outlets) == pipeline._recipe.outlets and not lane.train
        for lane in pipeline.lanes
    )


class Calls:
    """Counts the calls of one driver function, and lets one of them fail."""

    def __init__(self, session: aioascend.Session, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert session._core is not None
        driver = session._core.driver
        self.count, self.failing = 0, 0
        real: Callable[..., Any] = getattr(driver, name)

        def called(*args: Any) -> Any:
            self.count += 1
            if self.count == self.failing:
                raise driver.error(507001, f"acl.rt.{name}")
            return real(*args)

        monkeypatch.setattr(driver, name, called)


async def test_they_share_the_events_between_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Session(kit.add(1), depth=N) as session:
        records, runs = Calls(session, "record_event", monkeypatch), Calls(session, "execute_async", monkeypatch)
        assert right(await together(session)) == [True] * N
        assert runs.count == N
        assert records.count <= 4  # the first may have gone alone
        assert all_back(session)


@pytest.mark.logs_errors
@pytest.mark.parametrize(
    "name", ["memcpy_to_device", "record_event", "stream_wait_event", "execute_async", "memcpy_to_host"]
)
async def test_whichever_of_their_calls_fails_each_has_its_outcome(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Session(kit.add(1), depth=N) as session:
        calls = Calls(session, name, monkeypatch)
        failed = 0
        for number in range(1, N + 1):
            calls.count, calls.failing = 0, number
            with anyio.fail_after(20):
                failed += right(await together(session)).count(False)
                calls.failing = 0
                await eventually(lambda: session.ready and all_back(session), seconds=10)
                assert right(await together(session)) == [True] * N
        assert failed


@pytest.mark.logs_errors
@pytest.mark.parametrize("bad", range(N))
async def test_a_run_that_fails_among_them_fails_its_own_request_alone(bad: int) -> None:
    async with aioascend.Session(kit.out_of_bounds(), depth=N) as session:
        indices = [9 if number == bad else number % 4 for number in range(N)]
        tasks = [asyncio.ensure_future(session.infer(np.array([index], np.int64))) for index in indices]
        with anyio.fail_after(20):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for number, (index, result) in enumerate(zip(indices, results, strict=True)):
            if number == bad:
                assert isinstance(result, aioascend.ExecutionFailed)
            else:
                assert not isinstance(result, BaseException)
                np.testing.assert_array_equal(result[0], [10 + index])
        assert all_back(session)


@pytest.mark.logs_errors
@pytest.mark.parametrize("number", range(1, N + 1))
async def test_a_run_that_fails_once_among_them_is_made_again(number: int, emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1), depth=N) as session:
        await session.infer(row(0))
        emulator.faults.fail_task("execute", 507015, nth=number)
        with anyio.fail_after(20):
            assert right(await together(session)).count(False) <= 1  # a lone one is not repeated
            assert right(await together(session)) == [True] * N
        assert all_back(session)


async def test_requests_that_go_another_way_keep_their_place_among_them() -> None:
    async with aioascend.Session(kit.add(1), depth=N) as session:
        first = await session.infer(row(5), outputs="device")
        tasks = [
            asyncio.ensure_future(session.infer(first[0] if number % 2 else row(number), priority=0))
            for number in range(N)
        ]
        with anyio.fail_after(20):
            for number, result in enumerate(await asyncio.gather(*tasks)):
                np.testing.assert_array_equal(result[0], row(7 if number % 2 else number + 1))
        assert all_back(session)


@pytest.mark.logs_errors
async def test_those_that_a_dead_context_takes_with_it_are_run_again(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aioascend.Session(kit.add(1), depth=N) as session:
        assert session._core is not None
        driver = session._core.driver
        real, count = driver.execute_async, 0

        def dies(*args: Any) -> None:
            nonlocal count
            count += 1
            if count == 2:
                raise driver.error(507010, "acl.mdl.execute_async")
            real(*args)

        monkeypatch.setattr(driver, "execute_async", dies)
        with anyio.fail_after(20):
            right(await together(session))
            await eventually(lambda: session.ready, seconds=10)
            assert right(await together(session)) == [True] * N
        await eventually(lambda: all_back(session))


async def test_a_train_that_is_long_enough_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Session(kit.add(1), depth=N) as session:
        for lane in session._usable().lanes:
            lane._most_unarmed = 2
        records = Calls(session, "record_event", monkeypatch)
        assert right(await together(session)) == [True] * N
        assert N - 1 <= records.count <= 2 * N  # two for each two, and perhaps a lone first
        assert all_back(session)


@pytest.mark.logs_errors
@pytest.mark.parametrize("name, nth", [("memcpy_to_device", 3), ("record_event", 1), ("record_event", 2)])
async def test_a_context_that_dies_while_they_are_queued_loses_none(
    name: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aioascend.Session(kit.add(1), depth=N) as session:
        assert session._core is not None
        driver = session._core.driver
        real, count = getattr(driver, name), 0

        def dies(*args: Any) -> None:
            nonlocal count
            count += 1
            if count == nth:
                raise driver.error(507015, f"acl.rt.{name}")
            real(*args)

        pipeline = session._usable()
        with monkeypatch.context() as patch:
            # All of them in one decision: a lone first one would be launched as ever.
            patch.setattr(pipeline, "_held", True)
            tasks = [asyncio.ensure_future(session.infer(row(number))) for number in range(N)]
            await eventually(lambda: pipeline.admission.waiting == N)
        monkeypatch.setattr(driver, name, dies)
        session._core.call(pipeline._settle).result(10)
        with anyio.fail_after(20):
            right(await asyncio.gather(*tasks, return_exceptions=True))
            await eventually(lambda: session.ready, seconds=10)
            assert right(await together(session)) == [True] * N
        assert count >= nth
        await eventually(lambda: all_back(session))
