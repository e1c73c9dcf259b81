"""`await session.infer(x)`: the right answer, for whatever array is given."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

VALUES = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4) - 7


@pytest.mark.loops
async def test_the_answer_is_right_on_every_loop_and_completion_way() -> None:
    async with aioascend.Session(kit.pos()) as session:
        for offset in range(5):
            outputs = await session.infer(VALUES + offset)
            np.testing.assert_array_equal(outputs["y"], (VALUES + offset) * kit.POS_WEIGHT)


@pytest.mark.loops
async def test_2000_concurrent_callers_of_one_loop_get_their_own_answers() -> None:
    async with aioascend.Session(kit.add(1), max_waiting=4096) as session:
        inputs = [np.full(4, i, np.float32) for i in range(2000)]
        results = await asyncio.gather(*(session.infer(x) for x in inputs))
    assert [result[0].tolist() for result in results] == [[i + 1.0] * 4 for i in range(2000)]
    assert session.statistics().completed == 2000


def test_8_threads_with_loops_of_their_own_share_one_session() -> None:
    session = aioascend.Session(kit.add(1))
    wrong: list[object] = []

    async def work(number: int) -> None:
        for i in range(40):
            value = number * 1000 + i
            results = await asyncio.gather(*(session.infer(np.full(4, value + k / 8, np.float32)) for k in range(4)))
            wrong.extend(r for k, r in enumerate(results) if r[0].tolist() != [value + k / 8 + 1.0] * 4)

    with session:
        threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.statistics().completed == 8 * 40 * 4
    assert wrong == []


@pytest.mark.parametrize("instances", [1, 3])
async def test_any_number_of_instances_gives_the_same_answers(instances: int) -> None:
    async with aioascend.Session(kit.pos(), instances=instances, depth=2) as session:
        results = await asyncio.gather(*(session.infer(VALUES + i) for i in range(60)))
        for i, outputs in enumerate(results):
            np.testing.assert_array_equal(outputs[0], (VALUES + i) * kit.POS_WEIGHT)


@pytest.mark.parametrize("depth", [1, 2, 5])
async def test_any_depth_gives_the_same_answers(depth: int) -> None:
    async with aioascend.Session(kit.add(1), depth=depth) as session:
        results = await asyncio.gather(*(session.infer(np.full(4, i, np.float32)) for i in range(40)))
        assert [outputs[0][0] for outputs in results] == [i + 1 for i in range(40)]


def test_infer_sync_answers_in_a_plain_thread_and_refuses_to_block_a_loop() -> None:
    with aioascend.Session(kit.add(1)) as session:
        assert session.infer_sync(np.zeros(4, np.float32))[0].tolist() == [1] * 4

        async def inside() -> None:
            with pytest.raises(aioascend.BlockingCallInLoop, match=r"use `await session\.infer"):
                session.infer_sync(np.zeros(4, np.float32))
            # ... but a thread beside the loop may
            result = await asyncio.to_thread(session.infer_sync, np.ones(4, np.float32))
            assert result[0].tolist() == [2] * 4

        asyncio.run(inside())


@pytest.mark.emulated(ex_events=False)
async def test_old_cann_without_ex_events_gives_the_same_answers(emulator: Emulator) -> None:
    assert not hasattr(emulator.acl.rt, "create_event_ex_with_flag")
    async with aioascend.Session(kit.pos()) as session:
        results = await asyncio.gather(*(session.infer(VALUES + i) for i in range(40)))
        for i, outputs in enumerate(results):
            np.testing.assert_array_equal(outputs[0], (VALUES + i) * kit.POS_WEIGHT)
