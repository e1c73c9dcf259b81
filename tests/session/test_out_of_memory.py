"""Memory that runs out is an error that says how things stand, after idle memory was given back."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from tests import kit
from tests.waiting import eventually

MIB = 1 << 20

pytestmark = [pytest.mark.usefixtures("emulator"), pytest.mark.emulated(memory=64 * MIB)]

FIGURES = re.compile(r"asked for (\d+) bytes; of the device's (\d+) bytes (\d+) are used and (\d+) free")


async def test_the_error_says_what_was_asked_for_used_and_free() -> None:
    async with aioascend.Device("emulator:0") as device, aioascend.Session(kit.add(1)) as session:
        block = await device.malloc(20 * MIB)
        with pytest.raises(aioascend.OutOfMemory) as caught:
            await device.malloc(60 * MIB)
        asked, total, used, free = map(int, FIGURES.search(str(caught.value)).groups())  # type: ignore[union-attr]
        assert (asked, total, used + free) == (60 * MIB, 64 * MIB, 64 * MIB)
        assert used >= 20 * MIB
        assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1
        await block.release()


def failing(emulator: Emulator, name: str) -> tuple[Callable[[int], None], list[int]]:
    """Let the next so many calls of a function find no memory; and how many calls there were."""
    module: Any = emulator.acl.mdl if hasattr(emulator.acl.mdl, name) else emulator.acl.rt
    call, left, calls = getattr(module, name), [0], [0]

    def no_memory(*args: Any) -> Any:
        calls[0] += 1
        left[0] -= 1
        if left[0] >= 0:
            return 207001 if name == "execute_async" else (0, 207001)
        return call(*args)

    setattr(module, name, no_memory)
    return lambda count: left.__setitem__(0, count), calls


ONCE = 2  # a block of its size class, then what was asked for alone, in normal pages


async def test_idle_memory_is_given_back_before_anybody_is_refused(emulator: Emulator) -> None:
    run_out, _ = failing(emulator, "malloc")
    async with aioascend.Session(kit.add(1)) as idle, aioascend.Device("emulator:0") as device:
        async with idle.request() as request:
            request.inputs["x"][:] = 1
            await request.run()
        del request
        gc.collect()
        pipeline = idle._pipeline
        assert pipeline is not None
        await eventually(lambda: len(pipeline.leases._free) == 1)
        run_out(ONCE)
        await device.malloc(64)  # tried once more
        assert not pipeline.leases._free
        run_out(ONCE)
        async with aioascend.Session(kit.add(2)) as other:
            assert (await other.infer(np.zeros(4, np.float32)))[0][0] == 2
        run_out(2 * ONCE)
        with pytest.raises(aioascend.OutOfMemory, match="bytes of idle memory were given back"):
            await device.malloc(MIB)
        async with idle.request() as request:  # a buffer is made anew
            request.inputs["x"][:] = 1
            assert (await request.run())[0][0] == 2


async def test_a_run_without_memory_is_made_once_more_and_then_fails_alone(emulator: Emulator) -> None:
    run_out, calls = failing(emulator, "execute_async")
    zero = np.zeros(4, np.float32)
    async with aioascend.Session(kit.add(1)) as session:
        run_out(1)
        results = await asyncio.gather(*(session.infer(zero + i) for i in range(10)))
        assert [result[0][0] for result in results] == list(range(1, 11))
        calls[0] = 0
        run_out(2)
        with pytest.raises(aioascend.OutOfMemory):
            await session.infer(zero)
        assert calls[0] == 2
        assert (await session.infer(zero))[0][0] == 1


async def test_pinned_memory_that_runs_out_is_an_error_of_the_host(emulator: Emulator) -> None:
    run_out, _ = failing(emulator, "malloc_host")
    async with aioascend.Device("emulator:0") as device:
        run_out(2)  # 4096 bytes are a class
        with pytest.raises(aioascend.OutOfMemory, match=r"of the host's \d+ bytes \d+ are used"):
            await device.malloc_host(4096)
        assert (await device.malloc_host(4096)).array.nbytes == 4096


async def test_a_model_that_does_not_fit_leaves_room_for_one_that_does() -> None:
    with pytest.raises(aioascend.AioascendError) as caught:
        await aioascend.Session(kit.big(70)).open()
    assert isinstance(caught.value, aioascend.OutOfMemory)
    assert "of the device's" in str(caught.value)
    async with aioascend.Session(kit.big(4)) as session:
        ones = np.ones(4, np.float32)
        assert (await session.infer({"x": ones, "z": np.float32(1)}))["y"][0] == 2


async def test_a_run_that_is_made_again_waits_for_a_lane_that_takes_none_now(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_out, calls = failing(emulator, "execute_async")
    async with aioascend.Session(kit.add(1)) as session:
        pipeline: Any = session._pipeline
        core, (lane,) = pipeline._core, pipeline.lanes
        relieve = core.memory.relieve

        def hold_and_relieve() -> int:
            core.call(lambda: setattr(lane, "_repeating", True)).result(10)  # others are run again, each alone
            freed: int = relieve()
            return freed

        monkeypatch.setattr(core.memory, "relieve", hold_and_relieve)
        run_out(1)
        running = asyncio.ensure_future(session.infer(np.zeros(4, np.float32)))
        await eventually(lambda: lane.held and pipeline._handed_over)
        await asyncio.sleep(0.03)
        assert calls[0] == 1
        core.call(lambda: setattr(lane, "_repeating", False)).result(10)
        assert (await running)[0][0] == 1
        assert calls[0] == 2


@pytest.mark.logs_errors
async def test_a_run_that_is_to_be_made_again_when_the_context_dies_is_made_in_the_next(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_out, _ = failing(emulator, "execute_async")
    async with aioascend.Session(kit.add(1)) as session:
        pipeline: Any = session._pipeline
        core = pipeline._core
        relieve = core.memory.relieve

        def die_and_relieve() -> int:
            core.recovery.report(core.driver.error(507015, "acl.rt.test"))
            core.call(lambda: None).result(10)  # by then everybody has let go of the device
            freed: int = relieve()
            return freed

        monkeypatch.setattr(core.memory, "relieve", die_and_relieve)
        run_out(1)
        assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1
        assert session.statistics().devices[0].rebuilds == 1
