"""`outputs="device"`: results that stay on the device and go into another session there."""

from __future__ import annotations

import asyncio
import copy
import gc
import threading
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.runtime.pipeline import Pipeline
from tests import kit
from tests.session.chain import chain, host_chain, inputs
from tests.session.test_recovery_in_the_middle import said
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")

X = np.arange(4, dtype=np.float32)
SLOW = pytest.mark.emulated(profile=Profile(compute_default=0.1))
LARGE = 1 << 19


def inside(session: aioascend.Session) -> Pipeline:
    pipeline = session._pipeline
    assert pipeline is not None
    return pipeline


async def nothing_held(*sessions: aioascend.Session) -> None:
    """No result is alive or on its way, and no memory for one is set aside."""
    gc.collect()
    for session in sessions:
        spares = inside(session).device_spares
        await eventually(lambda spares=spares: (spares.alive, spares.promised, spares.idle) == (0, 0, []))  # type: ignore[misc]


def counted(emulator: Emulator, name: str) -> list[tuple[Any, ...]]:
    """The calls of a function of `acl.rt` from now on."""
    calls: list[tuple[Any, ...]] = []
    call = getattr(emulator.acl.rt, name)

    def noting(*args: Any) -> Any:
        calls.append(args)
        return call(*args)

    setattr(emulator.acl.rt, name, noting)
    return calls


# -- chains -----------------------------------------------------------------------------------------------------------


@pytest.mark.loops
async def test_a_chain_of_three_models_gives_what_the_chain_through_the_host_gives() -> None:
    async with chain(depth=2) as sessions:
        a, b, c = sessions

        async def on_the_device(seed: int) -> None:
            x, scale = inputs(seed)
            first = await a.infer(x, outputs="device")
            second = await b.infer({"hidden": first["hidden"]}, outputs="device")
            y = await c.infer([second["deeper"], first["skip"], scale])
            np.testing.assert_array_equal(y["y"], await host_chain(sessions, x, scale))

        async def handed_on_at_once(seed: int) -> None:
            x, scale = inputs(seed)
            first = await a.submit(x, outputs="device")
            second = await b.submit(first.tensors["hidden"], outputs="device")
            y = await c.infer({"skip": first.tensors["skip"], "scale": scale, "deeper": second.tensors[0]})
            np.testing.assert_array_equal(y["y"], await host_chain(sessions, x, scale))

        for seed in range(3):
            await on_the_device(seed)
            await handed_on_at_once(seed)
        await asyncio.gather(*(on_the_device(seed) for seed in range(12)), *map(handed_on_at_once, range(12)))
        await nothing_held(*sessions)


@pytest.mark.loops
@pytest.mark.emulated(profile=Profile(compute_default=0.004, copy_latency=0.001))
async def test_a_run_is_queued_behind_the_one_that_makes_its_input_and_not_after_it() -> None:
    async with chain() as sessions:
        a, b, _ = sessions
        x, _ = inputs(1)
        expected = (await b.infer((await a.infer(x))["hidden"]))[0]
        overlapped = 0
        for _ in range(10):
            first = await a.submit(x, outputs="device")
            second = await b.submit(first.tensors["hidden"])
            core = inside(a)._core
            both = core.call(lambda: inside(a).admission.running and inside(b).admission.running)
            overlapped += bool(await asyncio.wrap_future(both))
            np.testing.assert_array_equal((await second)[0], expected)
        assert overlapped  # both were on the device at once
        del first
        await nothing_held(a, b)


def without_waits_for(emulator: Emulator, stream: int) -> None:
    wait = emulator.acl.rt.stream_wait_event
    emulator.acl.rt.stream_wait_event = lambda waiting, event: 0 if waiting == stream else wait(waiting, event)


@SLOW
@pytest.mark.breaks_rules
async def test_the_wait_for_the_other_model_is_what_keeps_a_chain_in_order(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as a, aioascend.Session(kit.add(2)) as b:
        first = await a.infer(X, outputs="device")
        assert (await b.infer(first))[0].tolist() == (X + 3).tolist()
        assert not emulator.report().violations
        without_waits_for(emulator, inside(b).lanes[0]._compute)
        ticket = await a.submit(X, outputs="device")
        with pytest.raises(aioascend.AclError, match="have no order: record an event"):
            await b.infer(ticket.tensors)
        await ticket
    races = [violation for violation in emulator.report().violations if violation.rule == "race"]
    assert races
    assert "execute_async" in races[0].text


async def test_nothing_is_copied_and_on_hits_of_the_pool_nothing_allocated(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as a, aioascend.Session(kit.add(2)) as b:
        for _ in range(3):
            with await a.infer(X, outputs="device") as first, await b.infer(first, outputs="device") as second:
                await second.to_host()
            await nothing_held(a, b)
        copies, made = counted(emulator, "memcpy_async"), counted(emulator, "malloc")
        events, pinned = counted(emulator, "create_event_ex_with_flag"), counted(emulator, "malloc_host")
        for _ in range(5):
            with await a.infer(X, outputs="device") as first:
                assert (await b.infer(first))[0].tolist() == (X + 3).tolist()
            await nothing_held(a, b)
        assert len(copies) == 10  # in at the beginning, out at the end
        assert (made, events, pinned) == ([], [], [])


async def test_a_model_may_be_given_its_own_results() -> None:
    async with aioascend.Session(kit.add(1), depth=1) as session:
        state = await session.infer(X, outputs="device")
        for _ in range(10):
            state = await session.infer(state, outputs="device")
        assert (await state.to_host())[0].tolist() == (X + 11).tolist()
        tickets = [await session.submit(X, outputs="device")]
        for _ in range(10):
            tickets.append(await session.submit(tickets[-1].tensors, outputs="device"))
        assert (await tickets[-1].tensors[0].to_host()).tolist() == (X + 11).tolist()
        assert (await session.infer(X))[0].tolist() == (X + 1).tolist()
        tickets.clear()
        del state
        await nothing_held(session)


async def test_every_door_leaves_results_on_the_device() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        results = [outputs async for outputs in session.map([X, X], outputs="device")]
        async with session.request() as request:
            request.inputs["x"][:] = X
            results.append(await request.run(outputs="device"))
        del request
        results.append(await asyncio.to_thread(lambda: session.infer_sync(X, outputs="device")))
        results.append(await asyncio.to_thread(lambda: session.infer_sync(results[0], outputs="device")))
        for outputs in results[:-1]:
            assert (await outputs.to_host())[0].tolist() == (X + 1).tolist()
        assert (await results[-1].to_host())["y"].tolist() == (X + 2).tolist()
        leased = await session.infer(results[0], outputs="leased")
        assert leased.leased
        assert leased[0].tolist() == (X + 2).tolist()
        results.clear()
        del outputs
        await nothing_held(session)


async def test_what_a_tensor_says() -> None:
    async with aioascend.Session(kit.mixed()) as session:
        specs = session.outputs
        given = [np.zeros(spec.shape, spec.dtype) for spec in specs]
        outputs = await session.infer(given, outputs="device")
        assert isinstance(outputs, aioascend.DeviceOutputs)
        for tensor, spec in zip(outputs, specs, strict=True):
            assert isinstance(tensor, aioascend.DeviceTensor)
            assert (tensor.name, tensor.dtype, tensor.shape, tensor.nbytes) == (
                spec.name,
                spec.dtype,
                spec.shape,
                spec.nbytes,
            )
            assert tensor.device == "emulator:0"
        assert repr(outputs["ints"]) == "<aioascend.DeviceTensor ints: int64[5] on emulator:0>"
        assert repr(outputs).startswith("<DeviceOutputs half: float16[2, 3], ")
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.copy(outputs[0])
        again = await session.infer(outputs, outputs="device")  # hard values come back bit for bit
        np.testing.assert_array_equal((await again.to_host())["ints"], given[1])
        np.testing.assert_array_equal((await session.infer(await again.to_host()))["ints"], given[1])
        outputs["ints"].release()
        assert repr(outputs["ints"]).endswith("on emulator:0 (released)>")


async def test_tensors_are_checked_like_arrays() -> None:
    async with (
        aioascend.Session(kit.add(1), devices="emulator:0") as session,
        aioascend.Session(kit.add(1), devices="emulator:1") as other,
        aioascend.Session(kit.pos(), devices="emulator:0") as shaped,
        aioascend.Session(kit.out_of_bounds(4), devices="emulator:0") as typed,
        chain() as sessions,
    ):
        outputs = await session.infer(X, outputs="device")
        with pytest.raises(
            aioascend.InvalidInput, match=r"the tensor is on emulator:0, and this session on emulator:1"
        ):
            await other.infer(outputs)
        with pytest.raises(
            aioascend.InvalidInput, match=r"wanted float32 of shape \(1, 2, 3, 4\), given float32 of shape"
        ):
            await shaped.infer(outputs[0])
        with pytest.raises(
            aioascend.InvalidInput, match=r"wanted int64 of shape \(4,\), given float32 of shape \(4,\)$"
        ):
            await typed.infer(outputs)
        with pytest.raises(aioascend.InvalidInput, match="no input is named 'z'"):
            await session.infer({"z": outputs[0]})
        with pytest.raises(aioascend.InvalidInput, match="wanted 3 inputs"):
            await sessions[2].infer(outputs)
        inside(session).signature.__dict__["input_nbytes"] = (64,)
        with pytest.raises(
            aioascend.InvalidInput, match="the driver wants 64 bytes for it, and has given the tensor 16"
        ):
            await session.infer(outputs)


# -- how long the memory lives ----------------------------------------------------------------------------------------


async def test_a_result_lives_until_the_last_of_its_tensors_was_released_or_is_gone() -> None:
    async with aioascend.Session(kit.mixed()) as session:
        given = [np.ones(spec.shape, spec.dtype) for spec in session.inputs]
        outputs = await session.infer(given, outputs="device")
        assert session.statistics().device_results == 1
        ints = outputs["ints"]
        outputs["half"].release()
        outputs["half"].release()
        with pytest.raises(aioascend.StaleLease, match="the tensor 'half' was released"):
            await outputs["half"].to_host()
        with pytest.raises(aioascend.StaleLease, match="'half' was released"):
            await outputs.to_host()
        with pytest.raises(aioascend.StaleLease, match="'half' was released"):
            await session.infer(outputs)
        del outputs
        gc.collect()
        assert (await ints.to_host()).tolist() == [1] * 5
        with ints:
            pass
        await nothing_held(session)
        with pytest.raises(aioascend.StaleLease):
            await ints.to_host()


async def test_what_is_let_go_of_is_kept_until_the_runs_that_read_it_are_over() -> None:
    async with aioascend.Session(kit.add(1)) as a, aioascend.Session(kit.add(2), depth=1) as b:
        for _ in range(20):
            first = await a.infer(X, outputs="device")
            tickets = [await b.submit(first) for _ in range(4)]
            first.release()
            del first
            others = [await a.infer(-X - value, outputs="device") for value in range(4)]  # which would take its memory
            for ticket in tickets:
                assert (await ticket)[0].tolist() == (X + 3).tolist()
            del others
        await nothing_held(a, b)


@SLOW
async def test_a_result_may_be_let_go_of_before_it_is_there() -> None:
    async with aioascend.Session(kit.add(1)) as a, aioascend.Session(kit.add(2)) as b:
        ticket = await a.submit(X, outputs="device")
        second = await b.submit(ticket.tensors)
        ticket.tensors.release()
        assert (await second)[0].tolist() == (X + 3).tolist()
        ticket = await a.submit(X, outputs="device")
        tensor = ticket.tensors[0]
        tensor.release()
        outputs = await ticket
        with pytest.raises(aioascend.StaleLease):
            await outputs.to_host()
        other = await a.submit(X, outputs="device")
        reading = asyncio.ensure_future(other.tensors.to_host())
        await asyncio.sleep(0.01)
        assert not reading.done()
        assert (await reading)[0].tolist() == (X + 1).tolist()
        del ticket, other, outputs, reading
        await nothing_held(a, b)


async def test_a_result_that_was_released_elsewhere_meanwhile_is_not_read() -> None:
    async with aioascend.Session(kit.add(1)) as a, aioascend.Session(kit.add(2)) as b:
        first = await a.infer(X, outputs="device")
        go = threading.Event()
        inside(a)._core.post(lambda _: go.wait(10), None)
        waiting = [asyncio.ensure_future(b.infer(first))]
        inside(a)._core.post(lambda _: first.result.unclaim(), None)  # before the request has come
        first[0]._claim._end.detach()  # type: ignore[union-attr]
        waiting = [*waiting, asyncio.ensure_future(b.infer(first)), asyncio.ensure_future(first[0].to_host())]
        await asyncio.sleep(0.01)
        go.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, aioascend.StaleLease) for result in results)
        assert "this result was released: run the model again" in str(results[1])
        assert b.statistics().failed == 0
        await nothing_held(a, b)


async def test_no_more_results_than_were_agreed_are_on_the_device() -> None:
    async with aioascend.Session(kit.add(1), device_results=3) as session:
        kept = [await session.infer(X, outputs="device") for _ in range(3)]
        with pytest.raises(
            aioascend.Overloaded, match=r"3 results of this session are alive .*device_results=3\): release"
        ):
            await session.infer(X, outputs="device")
        with pytest.raises(aioascend.Overloaded):
            await session.submit(X, outputs="device")
        with pytest.raises(aioascend.Overloaded):
            async for _ in session.map([X], outputs="device"):
                pass
        assert session.statistics().refused == 3
        assert (await session.infer(X))[0].tolist() == (X + 1).tolist()
        kept.pop().release()
        await session.infer(kept[0], outputs="device")
        kept.clear()
        await nothing_held(session)
    with pytest.raises(aioascend.InvalidInput, match="device_results: wanted a whole number of at least 1"):
        aioascend.Session(kit.add(1), device_results=0)


async def test_a_session_may_be_closed_before_its_results_are_used(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(2)) as b:
        async with aioascend.Session(kit.add(1)) as a:
            first = await a.infer(X, outputs="device")
            second = await a.infer(X, outputs="device")
        assert (await b.infer(first))[0].tolist() == (X + 3).tolist()
        assert (await first.to_host())[0].tolist() == (X + 1).tolist()
        first.release()
        gc.collect()
    with pytest.raises(aioascend.StaleLease, match="whose context was rebuilt or closed since"):
        await second.to_host()
    async with aioascend.Session(kit.add(2)) as b:
        with pytest.raises(aioascend.StaleLease):
            await b.infer(second)
    del second  # quietly, though its device is gone
    gc.collect()
    await eventually(lambda: not emulator.threads)
    assert [str(leak) for leak in emulator.report().leaks if leak.kind != "init"] == []


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.loops
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.emulated(profile=Profile(copy_latency=0.002))
async def test_who_takes_the_result_of_a_run_that_fails_fails_with_its_cause(awaited: bool) -> None:
    async with (
        aioascend.Session(kit.out_of_bounds(4)) as a,
        aioascend.Session(kit.add(1)) as b,
        aioascend.Session(kit.add(2)) as c,
    ):

        async def through(bad: aioascend.Ticket[Any]) -> Any:
            second = await b.submit(bad.tensors, outputs="device")
            return await c.infer(second.tensors)

        for _ in range(5):
            good = await a.submit(np.array([1, 0, 1, 0]), outputs="device")
            bad = await a.submit(np.array([9, 1, 1, 1]), outputs="device")
            if awaited:
                with pytest.raises(aioascend.ExecutionFailed):
                    await bad
            results = await asyncio.gather(
                through(bad),
                b.infer(bad.tensors),
                bad.tensors[0].to_host(),
                b.infer(good.tensors),
                return_exceptions=True,
            )
            for result in results[:3]:
                assert isinstance(result, aioascend.ExecutionFailed)
                assert result.code == 507011
                assert said(result).count("this is what the run has failed with") == 1
            assert results[3][0].tolist() == [12, 11, 12, 11]
            results.clear()
            del result
        del good, bad
        await nothing_held(a, b, c)


@SLOW
async def test_a_run_that_was_given_up_has_no_result_and_its_memory_is_not_written_to_while_it_is_read() -> None:
    async with aioascend.Session(kit.add(1)) as a, aioascend.Session(kit.add(2)) as b:
        first = await a.submit(X, outputs="device")
        second = await b.submit(first.tensors)
        first.cancel()
        others = [await a.submit(-X, outputs="device") for _ in range(3)]
        with pytest.raises(aioascend.StaleLease, match="was given up"):
            await second
        for other in others:
            assert (await (await other).to_host())[0].tolist() == (1 - X).tolist()
        queued = [await a.submit(X, outputs="device") for _ in range(4)]
        late = await b.submit(queued[-1].tensors)
        queued[-1].cancel()  # before it has come to the device
        with pytest.raises(aioascend.StaleLease):
            await late
        queued[0].tensors.release()
        del first, second, others, other, queued, late
        await nothing_held(a, b)


@pytest.mark.loops
@pytest.mark.emulated(profile=Profile(compute_default=0.003, copy_latency=0.001))
async def test_cancelled_and_late_ones_leak_nothing(emulator: Emulator) -> None:
    async with chain(depth=2) as sessions:
        a, b, c = sessions

        async def run(seed: int, delay: float) -> None:
            x, scale = inputs(seed)
            with anyio.move_on_after(delay):
                first = await a.submit(x, outputs="device")
                second = await b.infer(first.tensors["hidden"], outputs="device", timeout=delay or None)
                y = await c.infer([second[0], first.tensors["skip"], scale])
                np.testing.assert_array_equal(y[0], expected[seed])

        expected = {seed: await host_chain(sessions, *inputs(seed)) for seed in range(4)}
        for number in range(60):
            try:
                await asyncio.gather(*(run(seed, (number % 12 + seed) * 0.002) for seed in range(4)))
            except aioascend.DeadlineExceeded:
                pass
        await run(0, 5)
        for session in sessions:
            await eventually(lambda session=session: session.statistics().running == 0)  # type: ignore[misc]
        await nothing_held(*sessions)
        device = a.statistics().memory.device  # type: ignore[union-attr]
    await eventually(lambda: not emulator.threads)
    assert [str(leak) for leak in emulator.report().leaks if leak.kind != "init"] == []
    assert device.used > 0


async def test_without_memory_for_its_result_a_run_is_refused_and_the_next_one_works(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        emulator.faults.fail("acl.rt.malloc", 207001, times=4)
        with pytest.raises(aioascend.OutOfMemory):
            await session.infer(X, outputs="device")
        assert session.statistics().failed == 1
        outputs = await session.infer(X, outputs="device")
        emulator.faults.fail("acl.rt.memcpy", 507011)
        with pytest.raises(aioascend.AclError, match="memcpy"):
            await outputs.to_host()
        assert (await outputs.to_host())[0].tolist() == (X + 1).tolist()
        del outputs
        await nothing_held(session)


async def test_a_run_without_memory_is_made_again_unless_somebody_reads_its_result(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as a, aioascend.Session(kit.add(2)) as b:
        emulator.faults.fail("acl.mdl.execute_async", 207001)
        first = await a.infer(X, outputs="device")
        emulator.faults.fail("acl.mdl.execute_async", 207001)
        assert (await b.infer(first))[0].tolist() == (X + 3).tolist()  # made again, though its input is on the device
        assert a.statistics().repeated == b.statistics().repeated == 1


async def test_copying_a_result_to_the_host_fails_without_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from aioascend.runtime import results

    def no_memory(*_: Any) -> Any:
        raise MemoryError("no memory")

    async with aioascend.Session(kit.add(1)) as session:
        outputs = await session.infer(X, outputs="device")
        with monkeypatch.context() as patched:
            patched.setattr(results.np, "empty", no_memory)
            with pytest.raises(aioascend.AioascendError, match="copying a result to the host failed: MemoryError"):
                await outputs.to_host()
        assert (await outputs.to_host())[0].tolist() == (X + 1).tolist()


async def test_closing_without_drain_tells_those_who_wait_for_another_run() -> None:
    async with aioascend.Session(kit.named("slow")) as other:
        a, b = aioascend.Session(kit.add(1)), aioascend.Session(kit.add(2))
        await a.open()
        await b.open()
        inside(a).admission.hold(0, True)
        keep = inside(a).admission.hold
        inside(a).admission.hold = lambda lane, held: None  # type: ignore[method-assign]
        first = await a.submit(X, outputs="device")
        waiting = [asyncio.ensure_future(b.infer(first.tensors)) for _ in range(2)]
        await eventually(lambda: len(inside(b)._parked) == 2)
        waiting[0].cancel()
        await b.aclose(drain=False)
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        with pytest.raises(aioascend.SessionClosed):
            await waiting[1]
        inside(a).admission.hold = keep  # type: ignore[method-assign]
        keep(0, False)
        inside(a)._core.post(lambda _: inside(a)._settle(), None)
        assert (await (await first).to_host())[0].tolist() == (X + 1).tolist()
        await a.aclose()
        assert other.ready


async def test_closing_with_drain_waits_for_those_who_wait_for_another_run() -> None:
    async with aioascend.Session(kit.add(1)) as a:
        b = aioascend.Session(kit.add(2))
        await b.open()
        admission = inside(a).admission
        admission.hold(0, True)
        keep, admission.hold = admission.hold, lambda lane, held: None  # type: ignore[method-assign,assignment]
        first = await a.submit(X, outputs="device")
        waiting = asyncio.ensure_future(b.infer(first.tensors))
        await eventually(lambda: len(inside(b)._parked) == 1)
        closing = asyncio.ensure_future(b.aclose())
        await eventually(lambda: b.statistics().state == "closing")
        admission.hold = keep  # type: ignore[method-assign]
        keep(0, False)
        inside(a)._core.post(lambda _: inside(a)._settle(), None)
        assert (await waiting)[0].tolist() == (X + 3).tolist()
        await closing


# -- read while the device is closed ----------------------------------------------------------------------------------


async def test_a_result_that_is_being_read_when_the_last_session_closes_is_read_to_the_end() -> None:
    session = aioascend.Session(kit.add(1), devices="emulator:0")
    await session.open()
    outputs = await session.infer(X, outputs="device")
    go = threading.Event()
    inside(session)._core.copy(go.wait, 10)  # the worker that reads is at something else
    reading = asyncio.ensure_future(outputs.to_host())
    await eventually(lambda: outputs.result.holds == 2)
    closing = asyncio.ensure_future(session.aclose())
    await eventually(lambda: inside(session)._core._copier._stopped)
    go.set()
    with anyio.fail_after(20):
        assert (await reading)[0].tolist() == (X + 1).tolist()
        await closing


@pytest.mark.parametrize("where", ["post", "copy"])
async def test_a_result_that_comes_to_be_read_too_late_is_stale(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: Any) -> Any:
        raise aioascend.SessionClosed("emulator:0 is closed")

    async with aioascend.Session(kit.add(1), devices="emulator:0") as session:
        outputs = await session.infer(X, outputs="device")
        with monkeypatch.context() as patch, anyio.fail_after(20):
            patch.setattr(inside(session)._core, where, closed)
            with pytest.raises(aioascend.StaleLease, match="rebuilt or closed since"):
                await outputs.to_host()
        assert (await outputs.to_host())[0].tolist() == (X + 1).tolist()


@pytest.mark.parametrize("fails", [False, True])
async def test_what_was_read_is_handed_out_although_the_device_was_closed_meanwhile(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aioascend.Session(kit.add(1), devices="emulator:0") as session:
        outputs = await session.infer(X, outputs="device")
        core = inside(session)._core
        post, read = core.post, core.driver.read_memory

        def closed(function: Any, argument: Any) -> Any:
            if function.__name__ == "ended":
                raise aioascend.SessionClosed("emulator:0 is closed")
            post(function, argument)

        def failing(*_: Any) -> None:
            raise MemoryError("no memory for an array")

        monkeypatch.setattr(core, "post", closed)
        monkeypatch.setattr(core.driver, "read_memory", failing if fails else read)
        with anyio.fail_after(20):
            if fails:
                with pytest.raises(aioascend.AioascendError, match="no memory for an array"):
                    await outputs.to_host()
            else:
                assert (await outputs.to_host())[0].tolist() == (X + 1).tolist()
        monkeypatch.undo()
        outputs.result.core.call(outputs.result.let_go).result(10)  # what `ended` would have done
