"""A copy on the host that fails is its own request's fault; one that is given up reaches no device."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, NoReturn

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.runtime import pipeline as pipeline_module
from aioascend.runtime.pipeline import Pipeline
from aioascend.runtime.request import Request
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")

SMALL, LARGE = 4, 1 << 19  # copied on the device thread, and by a worker


def idle(session: aioascend.Session) -> bool:
    now = session.statistics()
    return (now.waiting, now.staging, now.running, now.draining, now.leased) == (0,) * 5


def inside(session: aioascend.Session) -> Pipeline:
    pipeline = session._pipeline
    assert pipeline is not None
    return pipeline


class Failing:
    """Lets the nth copy from now raise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nth = 0
        copy = pipeline_module.copy_array

        def copy_or_fail(*args: Any) -> bool:
            self.nth -= 1
            if self.nth == 0:
                raise MemoryError("no room for a temporary")
            return copy(*args)

        monkeypatch.setattr(pipeline_module, "copy_array", copy_or_fail)


@pytest.mark.parametrize("size, nth, what", [(SMALL, 1, "inputs"), (LARGE, 1, "inputs"), (LARGE, 2, "outputs")])
async def test_it_is_told_to_its_own_request_alone(
    size: int, nth: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(monkeypatch)
    x = np.zeros(size, np.float32)
    async with aioascend.Session(kit.add(1, size)) as session:
        failing.nth = nth
        with anyio.fail_after(10):
            with pytest.raises(aioascend.AioascendError, match=f"copying the {what} failed: MemoryError: no room"):
                await session.infer(x)
            results = await asyncio.gather(*(session.infer(x + i) for i in range(6)))
        assert [result[0][0] for result in results] == list(range(1, 7))
        assert (session.statistics().failed, session.statistics().completed) == (1, 6)
        assert idle(session)


async def test_small_outputs_that_cannot_be_copied_are_told_to_their_request_alone() -> None:
    class NoRoom:
        def copy(self) -> NoReturn:
            raise MemoryError("no room")

    x = np.zeros(SMALL, np.float32)
    async with aioascend.Session(kit.add(1), depth=1) as session:
        (lane,) = inside(session).lanes
        outlet = lane.outlets[-1]  # which is the next to be taken
        views, outlet.views = outlet.views, [NoRoom()]  # type: ignore[list-item]
        with pytest.raises(aioascend.AioascendError, match="copying the outputs failed: MemoryError: no room"):
            await session.infer(x)
        outlet.views = views
        assert [(await session.infer(x))[0][0] for _ in range(3)] == [1, 1, 1]
        assert session.statistics().failed == 1
        assert idle(session)


@pytest.mark.emulated(profile=Profile(compute_default=0.05))
async def test_who_is_cancelled_just_when_its_turn_comes_never_reaches_the_device(emulator: Emulator) -> None:
    """Its arrays are claimed by the cancel, of which the device thread does not know yet."""
    x = np.zeros(SMALL, np.float32)
    async with aioascend.Session(kit.add(1), depth=1) as session:
        pipeline = inside(session)
        core, runs = pipeline._core, 0
        execute, post = emulator.acl.mdl.execute_async, core.post
        withheld: list[Any] = []

        def counted(*args: Any) -> Any:
            nonlocal runs
            runs += 1
            return execute(*args)

        def hold_back(function: Any, argument: Any) -> None:
            withheld.append(argument) if function == pipeline._withdraw else post(function, argument)

        emulator.acl.mdl.execute_async = counted
        first = [asyncio.ensure_future(session.infer(x)) for _ in range(3)]  # one runs, one is copied in, one waits
        await eventually(lambda: session.statistics().waiting == 1)
        core.post = hold_back
        first[2].cancel()
        with pytest.raises(asyncio.CancelledError):
            await first[2]
        await asyncio.gather(*first[:2])
        await eventually(lambda: session.statistics().cancelled == 1)
        core.post = post
        (request,) = withheld
        post(pipeline._withdraw, request)  # too late, and no matter
        assert (await session.infer(x))[0][0] == 1
        assert runs == 3
        assert session.statistics().cancelled == 1
        assert idle(session)


async def test_giving_up_a_request_of_a_device_that_is_closed_is_no_error() -> None:
    x = np.zeros(SMALL, np.float32)
    session = aioascend.Session(kit.add(1))
    await session.open()
    ticket = await session.submit(x)
    await session.aclose()
    ticket.cancel()
    assert (await ticket)[0][0] == 1
    pipeline = inside(session)
    request = session._request(pipeline, [x], patient=False)
    pipeline.abandon(request)
    assert request.taken


@pytest.mark.emulated(profile=Profile(compute_default=0.2))
async def test_who_is_cancelled_when_its_time_is_up_counts_as_cancelled() -> None:
    """The deadline is seen first, as the withdrawal is still on its way."""
    x = np.zeros(SMALL, np.float32)
    async with aioascend.Session(kit.add(1), depth=1) as session:
        pipeline = inside(session)
        core, post = pipeline._core, pipeline._core.post
        before = [asyncio.ensure_future(session.infer(x)) for _ in range(2)]
        await eventually(lambda: session.statistics().running == 1)
        late = asyncio.ensure_future(session.infer(x, timeout=0.1))
        await eventually(lambda: session.statistics().waiting == 1)
        core.post = lambda function, argument: function == pipeline._withdraw or post(function, argument)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        core.post = post
        await asyncio.gather(*before)
        assert (session.statistics().cancelled, session.statistics().expired) == (1, 0)
        assert idle(session)


def test_inputs_are_claimed_once_also_when_two_ask_in_the_same_moment() -> None:
    class Raced(list[Any]):
        def pop(self, *_: Any) -> Any:
            self.clear()  # by the other one
            return super().pop()

    request = Request([np.zeros(SMALL, np.float32)], patient=False)
    request._claim = Raced(request._claim)
    assert request.claim() is None
    assert request.claim() is None


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("outputs", ["owned", "leased", "device"])
async def test_who_is_cancelled_while_its_outcome_is_made_gives_everything_back_once(
    outputs: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.zeros(size, np.float32)
    async with aioascend.Session(kit.add(1, size), depth=1) as session:
        pipeline, loop = inside(session), asyncio.get_running_loop()
        finished, tasks = pipeline.admission.finished, list[asyncio.Task[Any]]()

        def cancelled_meanwhile(request: Request, *args: Any, **keywords: Any) -> None:
            finished(request, *args, **keywords)
            if tasks:
                pipeline.abandon(request)
                loop.call_soon_threadsafe(tasks.pop().cancel)

        monkeypatch.setattr(pipeline.admission, "finished", cancelled_meanwhile)
        for _ in range(4):  # more than there are places
            tasks.append(asyncio.ensure_future(session.infer(x, outputs=outputs)))
            with anyio.fail_after(10):
                await asyncio.wait([tasks[0]])
            assert not tasks
            await eventually(lambda: idle(session))
        outlets = pipeline.lanes[0].outlets
        assert len({id(outlet) for outlet in outlets}) == len(outlets)
        gc.collect()
        await eventually(lambda: session.statistics().leased_results == 0)
        await eventually(lambda: session.statistics().device_results == 0)
        with anyio.fail_after(10):
            kept = [await session.infer(x + i, outputs="leased") for i in range(6)]
        assert [result[0][0] for result in kept] == [i + 1 for i in range(6)]
        assert session.statistics().devices[0].rebuilds == 0
