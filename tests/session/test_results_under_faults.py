"""Results on the device while runs fail, streams hang, memory runs out, contexts go and devices are lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.testing import StubDriver, stubbed
from tests import kit
from tests.session.chain import chain, host_chain, inputs
from tests.session.test_leases_in_the_middle import block_control
from tests.session.test_recovery_in_the_middle import core_of, inside, kill_context, suspect_all
from tests.session.test_results_on_the_device import nothing_held
from tests.waiting import eventually

pytestmark = pytest.mark.logs_errors

X = np.arange(4, dtype=np.float32)
SLOW = pytest.mark.emulated(profile=Profile(compute_default=0.1))
SERVER = pytest.mark.emulated(soc_name="Ascend910B3")  # where streams can be aborted


# -- every call fails once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("completion, ex_events", [("callback", True), ("event", False)])
def test_every_kth_call_of_a_chain_fails_and_nothing_leaks(
    completion: str, ex_events: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", completion)
    kept: list[BaseException] = []
    with stubbed(ex_events=ex_events) as stub:
        assert _life(stub, kept) is None
        used = [call.number for call in stub.log if "memcpy" in call.function or "execute" in call.function]
    for k in range(used[0] - 2, used[-1] + 8):  # opens and closes have a test of their own
        with stubbed(ex_events=ex_events) as stub:
            stub.fail_at(k, 500002)
            error = _life(stub, kept)
            assert error is None or isinstance(error, aioascend.AioascendError)
            gc.collect()
            stub.assert_balanced()
    assert kept


def _life(stub: StubDriver, kept: list[BaseException]) -> BaseException | None:
    """Two sessions, a chain of both kinds, a leased result; the error if there was one."""
    zeros = np.zeros(4, np.float32)

    async def use(a: aioascend.Session, b: aioascend.Session) -> None:
        with anyio.fail_after(20):
            first = await a.infer(zeros, outputs="device")
            await b.infer(first, outputs="leased")
            await first.to_host()
            ticket = await a.submit(zeros, outputs="device")
            await b.infer(ticket.tensors)
            await a.infer(zeros)

    try:
        with (
            aioascend.Session(stub.model, devices="npu:0", depth=1) as a,
            aioascend.Session(stub.model, devices="npu:0", depth=1) as b,
        ):
            asyncio.run(use(a, b))
    except aioascend.AioascendError as error:
        kept.append(error)
        return error.with_traceback(None)
    return None


# -- runs that fail ---------------------------------------------------------------------------------------------------


@pytest.mark.loops
@pytest.mark.usefixtures("emulator")
@pytest.mark.emulated(profile=Profile(copy_latency=0.001))
async def test_each_of_many_chains_gets_its_own_outcome() -> None:
    async with (
        aioascend.Session(kit.out_of_bounds(4)) as a,
        aioascend.Session(kit.add(1)) as b,
        aioascend.Session(kit.add(2)) as c,
    ):

        async def through(number: int) -> Any:
            index = np.array([number % 4, 9 if number % 5 == 0 else 1, 2, 3])
            first = await a.submit(index, outputs="device")
            second = await b.submit(first.tensors, outputs="device")
            return await c.infer(second.tensors)

        for _ in range(4):
            results = await asyncio.gather(*(through(number) for number in range(20)), return_exceptions=True)
            for number, result in enumerate(results):
                if number % 5 == 0:
                    assert isinstance(result, aioascend.ExecutionFailed), result
                else:
                    assert not isinstance(result, BaseException), result
                    assert result[0].tolist() == [13 + number % 4, 14, 15, 16]
        assert a.statistics().repeated  # runs that may have failed were made again, and so were those that read them
        results.clear()
        del result
        await nothing_held(a, b, c)


@pytest.mark.usefixtures("emulator")
@SLOW
async def test_who_has_read_what_is_made_again_is_made_again() -> None:
    async with (
        aioascend.Session(kit.add(1)) as a,
        aioascend.Session(kit.add(2)) as b,
        aioascend.Session(kit.add(4)) as c,
    ):
        first = await a.submit(X, outputs="device")
        other = await a.submit(-X, outputs="device")
        second = await b.submit(first.tensors, outputs="device")
        third = await c.submit(second.tensors)

        def blame() -> None:
            lane = inside(a).lanes[0]
            lane._passed = lambda place, stage: True  # type: ignore[method-assign]
            lane._blame(core_of(a).driver.error(507011, "acl.rt.stream_query"), 1)
            assert all(place.suspect for place in lane.running_places())

        core_of(a).call(blame).result(5)
        late = await b.submit(first.tensors)  # waits until it is made again
        assert (await third)[0].tolist() == (X + 7).tolist()
        assert (await (await other).to_host())[0].tolist() == (1 - X).tolist()
        assert (await (await second).to_host())[0].tolist() == (X + 3).tolist()
        assert (await late)[0].tolist() == (X + 3).tolist()
        assert a.statistics().repeated == 2
        assert (b.statistics().repeated, c.statistics().repeated) == (1, 1)
        del first, other, second, third, late
        await nothing_held(a, b, c)


@pytest.mark.usefixtures("emulator")
async def test_a_run_without_memory_whose_result_others_read_is_not_made_again(emulator: Emulator) -> None:
    execute, fails = emulator.acl.mdl.execute_async, [False]

    def no_memory(*args: Any) -> Any:
        if fails[0]:
            fails[0] = False
            return 207001
        return execute(*args)

    emulator.acl.mdl.execute_async = no_memory
    async with aioascend.Session(kit.add(1)) as a, aioascend.Session(kit.add(2)) as b:
        ticket = await a.submit(X, outputs="device")
        await ticket
        admission = inside(a).admission
        admission.hold(0, True)
        keep, admission.hold = admission.hold, lambda lane, held: None  # type: ignore[method-assign,assignment]
        ticket = await a.submit(X, outputs="device")
        waiting = asyncio.ensure_future(b.infer(ticket.tensors))
        await eventually(lambda: len(inside(b)._parked) == 1)
        fails[0] = True
        admission.hold = keep  # type: ignore[method-assign]
        keep(0, False)
        core_of(a).post(lambda _: inside(a)._settle(), None)
        with pytest.raises(aioascend.OutOfMemory):
            await waiting
        with pytest.raises(aioascend.OutOfMemory):
            await ticket
        assert (a.statistics().repeated, b.statistics().repeated) == (0, 0)
        ticket = await a.submit(X, outputs="device")
        assert (await b.infer(ticket.tensors))[0].tolist() == (X + 3).tolist()


# -- old CANN ---------------------------------------------------------------------------------------------------------


@pytest.mark.loops
@pytest.mark.usefixtures("emulator")
@pytest.mark.emulated(ex_events=False)
async def test_where_an_event_serves_once_a_chain_is_put_in_order_by_the_host() -> None:
    async with chain() as sessions:
        a, b, c = sessions
        for seed in range(5):
            x, scale = inputs(seed)
            first = await a.submit(x, outputs="device")
            second = await b.submit(first.tensors["hidden"], outputs="device")
            y = await c.infer([second.tensors[0], first.tensors["skip"], scale])
            np.testing.assert_array_equal(y[0], await host_chain(sessions, x, scale))
        del first, second
        await nothing_held(*sessions)


# -- contexts that go -------------------------------------------------------------------------------------------------


@pytest.mark.loops
@pytest.mark.usefixtures("emulator")
async def test_a_rebuild_takes_what_was_on_the_device_with_it_and_says_so() -> None:
    async with (
        aioascend.Device("emulator:0") as device,
        aioascend.Session(kit.add(1), device_results=3) as a,
        aioascend.Session(kit.add(2)) as b,
    ):
        kept = [await a.infer(X, outputs="device") for _ in range(3)]
        await device.rebuild()
        with pytest.raises(
            aioascend.StaleLease, match="rebuilt or closed since, and went with it: run the model again"
        ):
            await b.infer(kept[0])
        with pytest.raises(aioascend.StaleLease):
            await kept[1].to_host()
        await eventually(lambda: a.statistics().device_results == 0)  # they hold nothing any more
        more = [await a.infer(X, outputs="device") for _ in range(3)]
        kept[0].release()
        kept.clear()
        gc.collect()
        assert (await b.infer(more[0]))[0].tolist() == (X + 3).tolist()
        assert a.statistics().device_results == 3
        more.clear()
        await nothing_held(a, b)


@pytest.mark.usefixtures("emulator")
@SLOW
async def test_a_chain_on_a_context_that_dies_goes_on_where_the_host_has_what_it_needs() -> None:
    async with aioascend.Session(kit.add(1), depth=2) as a, aioascend.Session(kit.add(2), depth=1) as b:
        before = await a.infer(X, outputs="device")
        first = [await a.submit(X + value, outputs="device") for value in range(2)]
        second = [asyncio.ensure_future(b.infer(ticket.tensors)) for ticket in first]
        queued = [asyncio.ensure_future(b.infer(before)) for _ in range(2)]
        await eventually(lambda: b.statistics().running == 1 and b.statistics().waiting + b.statistics().staging == 3)
        kill_context(a)
        with anyio.fail_after(20):
            results = await asyncio.gather(*second, *queued, return_exceptions=True)
            outputs = [await ticket for ticket in first]  # what they were made from was on the host
        for result in results:
            assert isinstance(result, aioascend.StaleLease)
            assert "run again what they came from" in str(result) or "run the model again" in str(result)
        for value, one in enumerate(outputs):
            assert (await b.infer(one))[0].tolist() == (X + value + 3).tolist()
        del before, first, outputs, one
        await nothing_held(a, b)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("function", ["rt.stream_wait_event", "update_data_buffer", "rt.record_event"])
async def test_who_loses_his_inputs_with_the_context_is_told_what_it_died_of(emulator: Emulator, function: str) -> None:
    async with (
        aioascend.Device("emulator:0") as device,
        aioascend.Session(kit.add(1)) as a,
        aioascend.Session(kit.add(2)) as b,
    ):
        kept = await a.infer(X, outputs="device")
        memory = await device.malloc(64)
        emulator.faults.fail(f"acl.{function}", 507015)
        with anyio.fail_after(20):
            errors = [await _refusal(b.infer(kept))]  # his own launch
            await eventually(lambda: device.generation == 2 and b.ready, seconds=20)
            errors += [await _refusal(b.infer(kept)), await _refusal(kept.to_host()), await _refusal(_address(memory))]
        for error in errors:
            assert isinstance(error.__cause__, aioascend.AclError)
            assert error.__cause__.code == 507015
            assert function in error.__cause__.call
            told = f"{error} {getattr(error, '__notes__', '')}"
            assert "507015" in told
            assert function in told
        await device.rebuild()  # at somebody's wish: what went with that context had no cause
        later = await a.infer(X, outputs="device")
        await device.rebuild()
        assert (await _refusal(b.infer(later))).__cause__ is None


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("function", ["rt.stream_wait_event", "update_data_buffer", "rt.record_event"])
async def test_a_reader_that_cannot_be_launched_fails_alone_with_what_failed(emulator: Emulator, function: str) -> None:
    async with (
        aioascend.Device("emulator:0") as device,
        aioascend.Session(kit.add(1)) as a,
        aioascend.Session(kit.add(2)) as b,
    ):
        kept = await a.infer(X, outputs="device")
        emulator.faults.fail(f"acl.{function}", 507000)
        with anyio.fail_after(20), pytest.raises(aioascend.AclError, match="507000"):
            await b.infer(kept)
        assert (await b.infer(kept))[0].tolist() == (X + 3).tolist()
        assert device.generation == 1


async def _address(memory: aioascend.DeviceBuffer) -> int:
    return memory.address


async def _refusal(call: Awaitable[object]) -> aioascend.StaleLease:
    with pytest.raises(aioascend.StaleLease) as caught:
        await call
    return caught.value


@pytest.mark.usefixtures("emulator")
@SLOW
async def test_a_suspect_whose_inputs_went_with_the_context_is_not_run_alone() -> None:
    async with aioascend.Session(kit.add(1), depth=2) as a, aioascend.Session(kit.add(2), depth=2) as b:
        first = await a.infer(X, outputs="device")
        second = [asyncio.ensure_future(b.infer(first)) for _ in range(2)]
        await eventually(lambda: b.statistics().running == 2)
        suspect_all(inside(b))
        kill_context(b)
        with anyio.fail_after(20):
            results = await asyncio.gather(*second, return_exceptions=True)
        assert all(isinstance(result, aioascend.StaleLease) for result in results)
        assert (await b.infer(X))[0].tolist() == (X + 2).tolist()


@pytest.mark.parametrize("fault", ["call", "task"])
@pytest.mark.parametrize("kind", ["leased", "device"])
@pytest.mark.emulated(profile=Profile(compute_default=0.005))
async def test_after_a_context_has_died_results_that_were_let_go_of_are_gone(
    emulator: Emulator, kind: Any, fault: str
) -> None:
    session = aioascend.Session(kit.add(1), depth=3)
    async with session:
        errors: list[BaseException] = []
        for nth in (3, 5, 7):
            if fault == "call":
                emulator.faults.fail("acl.mdl.execute_async", 507015, nth=nth)
            else:
                emulator.faults.fail_task("execute", 507015, nth=nth)
            tickets = [await session.submit(X, outputs=kind) for _ in range(12)]
            results = await asyncio.gather(*tickets, return_exceptions=True)
            errors += [result for result in results if isinstance(result, BaseException)]
            del tickets, results
            gc.collect()  # the errors are kept, by the caller and for the statistics
            await eventually(lambda: session.statistics().leased_results == session.statistics().device_results == 0)
        assert session.statistics().devices[0].rebuilds == 3
    await eventually(lambda: not emulator.threads)  # the device is closed, for which all of them must be back
    assert all(isinstance(error, aioascend.AclError | aioascend.Overloaded) for error in errors)


@pytest.mark.usefixtures("emulator")
@SLOW
async def test_results_of_suspects_that_were_run_alone_count_like_any() -> None:
    async with aioascend.Session(kit.add(1), depth=3, device_results=3) as session:
        old = await session.infer(X, outputs="device")
        tasks = [asyncio.ensure_future(session.infer(X + value, outputs="device")) for value in range(2)]
        await eventually(lambda: session.statistics().running == 2)
        suspect_all(inside(session))
        kill_context(session)
        with anyio.fail_after(20):
            kept = await asyncio.gather(*tasks)
            await eventually(lambda: session.statistics().repeated == 2 and session.statistics().device_results == 2)
            kept.append(await session.infer(X + 2, outputs="device"))
            with pytest.raises(aioascend.Overloaded, match="3 results of this session are alive"):
                await session.infer(X, outputs="device")
        for value, one in enumerate(kept):
            assert (await one.to_host())[0].tolist() == (X + value + 1).tolist()
        del old, one
        kept.clear()
        tasks.clear()
        await nothing_held(session)


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("short", [False, True])
async def test_those_who_were_promised_room_have_it_in_the_next_context(emulator: Emulator, short: bool) -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1), depth=1) as session:
        go = block_control(session)
        rebuilding = asyncio.ensure_future(device.rebuild())
        await eventually(lambda: inside(session)._held)
        spares = inside(session).device_spares
        waiting = [asyncio.ensure_future(session.infer(X + value, outputs="device")) for value in range(3)]
        await eventually(lambda: spares.promised == 3)
        if short:
            take, short_of = spares._make, [2]

            def make() -> Any:
                short_of[0] -= 1
                if short_of[0] >= 0:
                    raise core_of(session).driver.error(207001, "acl.rt.malloc")
                return take()

            spares._make = make  # type: ignore[method-assign]
        go.set()
        with anyio.fail_after(20):
            results = await asyncio.gather(rebuilding, *waiting, return_exceptions=True)
        if short:
            assert any(isinstance(result, aioascend.OutOfMemory) for result in results)
        else:
            for value, result in enumerate(results[1:]):
                assert (await result.to_host())[0].tolist() == (X + value + 1).tolist()
        await eventually(lambda: session.ready, seconds=10)
        outputs = await session.infer(X, outputs="device")
        assert (await outputs.to_host())[0].tolist() == (X + 1).tolist()
        results.clear()
        waiting.clear()
        del outputs
        if not short:
            del result
        await nothing_held(session)


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("kind", ["device", "leased"])
async def test_room_that_was_made_in_a_context_that_is_gone_is_not_used(kind: Any) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        core = core_of(session)
        spares: Any = inside(session).device_spares if kind == "device" else inside(session).pinned_spares
        make, made, generation = spares._make, [], core.generation

        def late() -> Any:
            made.append(make())
            core.generation = generation + (len(made) == 1)  # another one when the news of the first comes
            return made[-1]

        spares._make = late
        outputs = await session.infer(X, outputs=kind)
        core.generation = generation
        assert len(made) == (1 if kind == "device" else 2)  # the device's pool has it then
        assert isinstance(outputs, aioascend.DeviceOutputs) or outputs.leased
        block = made[0] if kind == "device" else made[0].block
        assert block.address == 0  # given back


@pytest.mark.usefixtures("emulator")
async def test_whatever_goes_wrong_while_room_is_made_the_request_is_told() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        spares: Any = inside(session).device_spares
        make = spares._make

        def broken() -> Any:
            raise ValueError("broken")

        spares._make = broken
        with pytest.raises(aioascend.AioascendError, match=r"memory for a result: ValueError\('broken'\)"):
            await session.infer(X, outputs="device")
        spares._make = make
        assert (await (await session.infer(X, outputs="device")).to_host())[0].tolist() == (X + 1).tolist()


@pytest.mark.usefixtures("emulator")
async def test_two_threads_may_give_back_the_last_spare() -> None:
    class Emptied(list[Any]):
        """Somebody else takes the last one between a look and a pop."""

        def __len__(self) -> int:
            return 1

    async with aioascend.Session(kit.add(1)) as session:
        spares = inside(session).device_spares
        spares.idle = Emptied()
        spares.close()
        spares.idle = []


@pytest.mark.usefixtures("emulator")
async def test_a_copy_to_the_host_that_ends_after_its_device_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        outputs = await session.infer(X, outputs="device")
        result, core, outcome = outputs.result, core_of(session), Future[Any]()

        def closed(*_: Any) -> Any:
            raise aioascend.SessionClosed("the device is closed")

        with monkeypatch.context() as patched:
            patched.setattr(core, "post", closed)
            result._read([(0, session.outputs[0])], outcome)
            assert outcome.result(5)[0].tolist() == (X + 1).tolist()
        with monkeypatch.context() as patched:
            patched.setattr(core, "call", closed)
            inside(session).pinned_spares.give_back_idle()  # nobody is left who could
        core.call(result.let_go).result(5)
        del outputs, result
        await nothing_held(session)


@pytest.mark.usefixtures("emulator")
async def test_a_device_that_is_lost_fails_the_whole_chain_and_comes_back(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as a, aioascend.Session(kit.add(2)) as b:
        first = await a.infer(X, outputs="device")
        emulator.faults.lose_device(0)
        with pytest.raises(aioascend.AioascendError):
            await b.infer(first)
        with anyio.fail_after(10):
            with pytest.raises(aioascend.AioascendError):
                await first.to_host()
        emulator.faults.return_device(0)
        await eventually(lambda: a.ready and b.ready, seconds=20)
        first = await a.infer(X, outputs="device")
        assert (await b.infer(first))[0].tolist() == (X + 3).tolist()


# -- streams that hang ------------------------------------------------------------------------------------------------


@SERVER
@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("patience", [600.0, None])
async def test_a_producer_that_hangs_is_found_whatever_patience_its_readers_have(
    emulator: Emulator, patience: float | None
) -> None:
    async with (
        aioascend.Session(kit.add(1), stall_timeout=0.4) as a,
        aioascend.Session(kit.add(2), stall_timeout=patience) as b,
    ):
        emulator.faults.hang("execute")
        hanging = await a.submit(X, outputs="device")
        reader = asyncio.ensure_future(b.infer(hanging.tensors))
        with anyio.fail_after(20):
            results = await asyncio.gather(hanging, reader, return_exceptions=True)
        for result in results:
            assert isinstance(result, aioascend.AclError)
            assert "stall_timeout=0.4 s" in str(result)


@SERVER
@pytest.mark.usefixtures("emulator")
async def test_a_producer_that_hangs_fails_with_those_who_read_it(emulator: Emulator) -> None:
    async with (
        aioascend.Session(kit.add(1), stall_timeout=0.4) as a,
        aioascend.Session(kit.add(2), stall_timeout=0.4) as b,
    ):
        await (await a.infer(X, outputs="device")).to_host()
        await b.infer(X)
        emulator.faults.hang("execute")
        hanging = await a.submit(X, outputs="device")
        behind = await a.submit(X, outputs="device")
        plain = asyncio.ensure_future(a.infer(X))
        readers = [asyncio.ensure_future(b.infer(ticket.tensors)) for ticket in (hanging, behind)]
        with anyio.fail_after(20):
            results = await asyncio.gather(*readers, hanging, behind, plain, return_exceptions=True)
        assert all(isinstance(result, aioascend.AclError) for result in results[:4]), results
        assert not isinstance(results[4], BaseException)
        assert results[4][0].tolist() == (X + 1).tolist()
        await eventually(lambda: a.ready and b.ready, seconds=20)
        first = await a.submit(X, outputs="device")
        assert (await b.infer(first.tensors))[0].tolist() == (X + 3).tolist()
        results.clear()
        del hanging, behind, first, readers
        await nothing_held(a, b)
