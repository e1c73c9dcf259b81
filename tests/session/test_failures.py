"""What fails on the device fails its own request, with the device's text, and never hands out earlier bytes."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")


def at(*indices: int) -> np.ndarray:
    return np.array(indices, np.int64)


@pytest.mark.loops
async def test_a_failing_run_raises_for_its_caller_and_the_next_is_right() -> None:
    async with aioascend.Session(kit.out_of_bounds()) as session:
        assert (await session.infer(at(1)))[0].tolist() == [11]
        with pytest.raises(aioascend.ExecutionFailed) as caught:
            await session.infer(at(9))
        assert caught.value.code == 507011
        assert caught.value.name == "ACL_ERROR_RT_MODEL_EXECUTE"
        assert caught.value.device == "emulator:0"
        assert "idx=9" in caught.value.detail
        assert (await session.infer(at(2)))[0].tolist() == [12]
        assert session.statistics().failed == 1


@pytest.mark.parametrize("depth", [1, 3])
async def test_among_concurrent_requests_no_failed_one_ever_gets_an_answer(depth: int) -> None:
    async with aioascend.Session(kit.out_of_bounds(), depth=depth) as session:
        indices = [9 if i % 7 == 0 else i % 4 for i in range(140)]
        results = await asyncio.gather(*(session.infer(at(i)) for i in indices), return_exceptions=True)
        for index, result in zip(indices, results, strict=True):
            if index == 9:
                assert isinstance(result, aioascend.ExecutionFailed)
            elif isinstance(result, aioascend.ExecutionFailed):
                assert "were unconfirmed on this stream" in result.detail  # a neighbour of a failed one says why
            else:
                assert not isinstance(result, BaseException)
                assert result[0].tolist() == [10 + index]
        if depth == 1:
            assert sum(isinstance(result, Exception) for result in results) == indices.count(9)
        assert (await session.infer(at(3)))[0].tolist() == [13]


async def test_more_failures_than_places_block_nobody() -> None:
    async with aioascend.Session(kit.out_of_bounds()) as session:
        for _ in range(8):
            with pytest.raises(aioascend.ExecutionFailed):
                await session.infer(at(9))
        results = await asyncio.gather(*(session.infer(at(9)) for _ in range(8)), return_exceptions=True)
        assert all(isinstance(result, aioascend.ExecutionFailed) for result in results)
        async with asyncio.timeout(5):
            assert (await session.infer(at(1)))[0].tolist() == [11]


async def test_a_failure_reaches_the_holder_of_a_ticket_and_each_await_of_it() -> None:
    async with aioascend.Session(kit.out_of_bounds()) as session:
        ticket = await session.submit(at(9))
        for _ in range(2):
            with pytest.raises(aioascend.ExecutionFailed):
                await ticket
        assert ticket.done()


async def test_a_failure_of_another_session_on_the_same_device_is_not_ours() -> None:
    async with aioascend.Session(kit.out_of_bounds()) as bad, aioascend.Session(kit.add(1)) as good:
        failing = [bad.infer(at(9)) for _ in range(20)]
        working = [good.infer(np.full(4, i, np.float32)) for i in range(20)]
        results = await asyncio.gather(*failing, *working, return_exceptions=True)
        assert all(isinstance(result, aioascend.ExecutionFailed) for result in results[:20])
        assert [result[0][0] for result in results[20:]] == [i + 1 for i in range(20)]  # type: ignore[index]
