"""`depth="auto"`: how many requests are on the device at once is measured at open."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack

import numpy as np
import pytest

import aioascend
from aioascend import depth as auto_depth
from aioascend.emulator import Emulator, Profile
from aioascend.runtime.tenant import Tenant
from tests import kit
from tests.session.test_under_faults import Books
from tests.waiting import eventually

ONES = np.ones(4, np.float32)
THREE_STAGES = Profile(copy_latency=0.01, compute_default=0.01)
SLOW = Profile(compute_default=0.3)
# Half of what the third place brings: the host's part of a run is some of 30 ms where others use the machine.
SURE = aioascend.AutoDepth(gain=0.3, seconds=30)


@pytest.fixture(autouse=True)
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial is over after half the time."""
    monkeypatch.setattr(auto_depth, "_TRIAL_S", 0.1)


def made(emulator: Emulator) -> Counter[str]:
    """How many handles there are of every kind."""
    return Counter(leak.kind for leak in emulator.report().leaks)


@pytest.mark.emulated(profile=THREE_STAGES)
@pytest.mark.usefixtures("emulator")
async def test_three_stages_of_equal_length_get_three_places(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioascend.session")
    session = aioascend.Session(kit.add(1), depth=SURE)
    assert (session.depth, session.depth_reason) == (1, "it is measured when the session is opened")
    async with session:
        assert session.depth == 3
        assert "depth 4 brings" in session.depth_reason
        assert "30% more to be worth it" in session.depth_reason
        now = session.statistics()
        assert (now.depth, now.depth_reason) == (3, session.depth_reason)
        assert (now.completed, now.cancelled, now.running, now.waiting) == (0, 0, 0, 0)  # nobody's requests
        assert f"depth 3: {session.depth_reason}" in caplog.text
        assert "0/3 running" in repr(session)
        answers = await asyncio.gather(*(session.infer(ONES * i) for i in range(10)))
        assert [answer[0][0] for answer in answers] == [i + 1 for i in range(10)]


@pytest.mark.emulated(profile=Profile(compute_default=0.02))
@pytest.mark.usefixtures("emulator")
async def test_where_everything_is_compute_one_place_is_enough() -> None:
    async with aioascend.Session(kit.add(1), depth=aioascend.AutoDepth(gain=3.0, seconds=30)) as session:
        assert session.depth == 1
        assert "depth 2 brings" in session.depth_reason


@pytest.mark.emulated(profile=Profile(compute_default=5e-3))
async def test_what_it_leaves_is_what_a_session_of_that_depth_has(emulator: Emulator) -> None:
    async with (
        aioascend.Device("emulator:0") as device,
        aioascend.Session(kit.add(1), depth=SURE, instances=2) as session,
    ):
        await device.trim_memory()  # of the places that were given back
        auto, depth = made(emulator), session.depth
        assert len(session.depth_reason) > 20
        pipeline = session._usable()
        assert all(len(lane.places) == depth for lane in pipeline.lanes)
        async with AsyncExitStack() as stack:
            for _ in range(max(2, 2 * depth)):
                await stack.enter_async_context(session.request())
            assert session.statistics().leased == max(2, 2 * depth)
    async with aioascend.Session(kit.add(1), depth=depth, instances=2):
        assert made(emulator) == auto


@pytest.mark.emulated(profile=THREE_STAGES)
async def test_another_place_is_not_tried_where_there_is_no_memory_for_it(emulator: Emulator) -> None:
    malloc_host, blocks = emulator.acl.rt.malloc_host, 0

    def no_more(nbytes: int) -> tuple[int, int]:
        nonlocal blocks
        blocks += 1
        return (0, 207001) if blocks > 7 else malloc_host(nbytes)  # four at first, two for every place more

    emulator.acl.rt.malloc_host = no_more
    async with aioascend.Session(kit.add(1), depth=SURE) as session:
        assert session.depth == 2
        assert session.depth_reason.startswith("there is no memory for depth 3: ")
        assert "207001" in session.depth_reason
        assert (await session.infer(ONES))[0].tolist() == [2.0] * 4


@pytest.mark.emulated(profile=THREE_STAGES)
@pytest.mark.parametrize("place", [1, 2])
async def test_runs_that_find_no_memory_end_the_search_but_for_the_first_depth(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    execute, grow = emulator.acl.mdl.execute_async, Tenant.grow
    grown: list[Tenant] = []

    def note_and_grow(tenant: Tenant) -> None:
        grown.append(tenant)
        grow(tenant)

    def short_of_memory(*args: int) -> int:
        return 207001 if place == 1 or grown else execute(*args)

    monkeypatch.setattr(Tenant, "grow", note_and_grow)
    emulator.acl.mdl.execute_async = short_of_memory
    session = aioascend.Session(kit.add(1), depth=SURE)
    if place == 1:
        with pytest.raises(aioascend.OutOfMemory):
            await session.open()
        return
    async with session:
        assert session.depth == 1
        assert session.depth_reason.startswith("there is no memory for depth 2: ")


@pytest.mark.usefixtures("emulator")
async def test_a_pause_of_the_machine_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A depth that seems not to pay is measured once more, and the better of the two counts."""
    rates = iter([100.0, 90.0, 200.0, 205.0, 190.0])
    monkeypatch.setattr(auto_depth, "steady_rate", lambda *args: next(rates))
    async with aioascend.Session(kit.add(1), depth="auto") as session:
        assert session.depth == 2
        assert session.depth_reason.startswith("depth 3 brings 2.5% more throughput than depth 2")


@pytest.mark.usefixtures("emulator")
async def test_where_there_is_no_time_to_measure_again_the_first_measure_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = iter([100.0, 90.0, None])
    monkeypatch.setattr(auto_depth, "steady_rate", lambda *args: next(rates))
    async with aioascend.Session(kit.add(1), depth="auto") as session:
        assert session.depth == 1
        assert session.depth_reason.startswith("depth 2 brings 10.0% less throughput than depth 1")


@pytest.mark.usefixtures("emulator")
async def test_a_model_that_fails_fails_the_open_as_a_warm_up_does() -> None:
    session = aioascend.Session(kit.out_of_bounds(), examples={"index": np.array([9])}, depth="auto")
    with pytest.raises(aioascend.ExecutionFailed):
        await session.open()
    await eventually(lambda: not aioascend.runtime.process.open_devices())


@pytest.mark.emulated(profile=SLOW)
@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("seconds, runs", [(0.05, 0), (0.35, 1)])
async def test_the_search_ends_when_its_time_is_over(seconds: float, runs: int) -> None:
    """With what is on the device then: one run of 0.3 s."""
    started = time.monotonic()
    async with aioascend.Session(kit.add(1), depth=aioascend.AutoDepth(seconds=seconds)) as session:
        assert time.monotonic() - started < 2
        assert session.depth == 1
        assert session.depth_reason == (
            f"the {seconds:g} s for the search were over before depth 1 was measured; "
            "AutoDepth(seconds=...) gives it longer"
        )
        assert session.statistics().cancelled == 0


@pytest.mark.loops
@pytest.mark.emulated(profile=SLOW)
@pytest.mark.usefixtures("emulator")
async def test_a_search_that_is_cancelled_leaves_nothing_behind() -> None:
    session = aioascend.Session(kit.add(1), depth=SURE)
    opening = asyncio.ensure_future(session.open())
    await eventually(lambda: bool(aioascend.runtime.process.open_devices()))
    await asyncio.sleep(0.1)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    started = time.monotonic()
    await session.aclose()
    assert time.monotonic() - started < 3  # and not the nine runs of a trial


@pytest.mark.emulated(profile=THREE_STAGES)
@pytest.mark.usefixtures("emulator")
async def test_a_context_that_is_rebuilt_in_the_middle_of_the_search_gets_as_many_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the growth, so that the place which turns out to be one too many was made by the rebuild."""
    async with aioascend.Device("emulator:0") as device:
        loop = asyncio.get_running_loop()
        grow = Tenant.grow
        generations = []

        def grow_and_rebuild(tenant: Tenant) -> None:
            grow(tenant)
            generations.append(device.generation)
            if tenant.depth == 2:
                loop.call_soon_threadsafe(rebuilding.append, device.rebuild())

        rebuilding: list[Coroutine[object, object, None]] = []
        monkeypatch.setattr(Tenant, "grow", grow_and_rebuild)
        session = aioascend.Session(kit.add(1), depth=aioascend.AutoDepth(gain=10, seconds=30))
        opening = asyncio.ensure_future(session.open())
        await eventually(lambda: bool(rebuilding))
        await rebuilding[0]
        await opening
        try:
            assert device.generation == generations[0] + 1
            assert session.depth == 1
            [lane] = session._usable().lanes
            assert len(lane.places) == 2
            answers = await asyncio.gather(*(session.infer(ONES * i) for i in range(6)))
            assert [answer[0][0] for answer in answers] == [i + 1 for i in range(6)]
            await device.rebuild()
            assert (await session.infer(ONES))[0][0] == 2
            [lane] = session._usable().lanes
            assert len(lane.places) == 1
        finally:
            await session.aclose()


@pytest.mark.usefixtures("emulator")
async def test_a_place_too_many_in_a_context_that_is_about_to_go_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Device("emulator:0") as device:
        loop = asyncio.get_running_loop()
        shrink = Tenant.shrink
        rebuilt: list[Future[None]] = []

        def rebuild_and_shrink(tenant: Tenant) -> None:
            rebuilt.append(asyncio.run_coroutine_threadsafe(device.rebuild(), loop))
            limit = time.monotonic() + 5
            while tenant.lanes:  # until it has let go of everything; the rest happens on this thread, afterwards
                assert time.monotonic() < limit
                time.sleep(0.001)
            shrink(tenant)

        monkeypatch.setattr(Tenant, "shrink", rebuild_and_shrink)
        async with aioascend.Session(kit.add(1), depth=aioascend.AutoDepth(gain=10, seconds=30)) as session:
            assert session.depth == 1
            await asyncio.wrap_future(rebuilt[0])
            assert (await session.infer(ONES))[0][0] == 2
            [lane] = session._usable().lanes
            assert len(lane.places) == 1


@pytest.mark.logs_errors
async def test_a_device_that_is_lost_in_the_middle_of_the_search_fails_the_open(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady_rate = auto_depth.steady_rate

    def lose(*args: object) -> float | None:
        emulator.faults.lose_device(0, recoverable=False)
        return steady_rate(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(auto_depth, "steady_rate", lose)
    with pytest.raises(aioascend.AclError):
        await aioascend.Session(kit.add(1), depth=SURE).open()


async def test_places_that_are_added_while_there_is_no_context_are_in_the_next_one(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1), depth=1) as session:
        pipeline = session._usable()
        core = session._core
        assert core is not None

        def in_between() -> None:
            pipeline.dismantle()
            pipeline.grow()
            pipeline.restore()
            pipeline.grow()
            core.call(pipeline.resume).result()

        async def all_answer() -> None:
            answers = await asyncio.gather(*(session.infer(ONES * i) for i in range(12)))
            assert [answer[0][0] for answer in answers] == [i + 1 for i in range(12)]

        await asyncio.wrap_future(core.control(in_between))
        [lane] = pipeline.lanes
        assert (pipeline.depth, len(lane.places)) == (3, 3)
        await all_answer()
        for depth in (2, 1):  # the second of them was made with the context, and stays as long as it
            await asyncio.wrap_future(core.control(pipeline.shrink))
            assert (pipeline.depth, len(lane.places)) == (depth, 2)
            await all_answer()


@pytest.mark.parametrize(
    "function", ["rt.malloc", "rt.malloc_host", "rt.create_event_ex_with_flag", "mdl.create_dataset"]
)
async def test_a_search_whose_kth_call_fails_gives_everything_back(
    emulator: Emulator, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_depth, "_TRIAL_S", 0.0)
    books = Books(emulator)
    for k in range(1, 40):
        rates = iter([1.0, 2.0, 3.0, 3.0, 3.0])
        monkeypatch.setattr(auto_depth, "steady_rate", lambda *args, rates=rates: next(rates))
        books.fail, books.calls = (function, k), 0
        session = aioascend.Session(kit.add(1), depth=SURE)
        (outcome,) = await asyncio.gather(session.open(), return_exceptions=True)
        if outcome is None:
            assert session.depth == 3
            assert (await session.infer(ONES))[0][0] == 2
        else:
            assert isinstance(outcome, aioascend.AioascendError)
        await session.aclose()
        books.assert_balanced()
        if books.calls < k:
            assert outcome is None
            return
    raise AssertionError("more calls than expected: the loop has not tried them all")
