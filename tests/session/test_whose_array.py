"""Whose array it is: overwritten at every moment at which it is the caller's."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto

import aioascend
from aioascend.memory.copying import copy_array
from aioascend.runtime import pipeline
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")

SMALL, LARGE = 64, 3 << 20  # floats: copied on the device thread, and piece by piece on the copy worker


def identity(n: int) -> bytes:
    return kit.identity(TensorProto.FLOAT, (n,))


@pytest.mark.parametrize("n", [SMALL, LARGE])
async def test_after_submit_an_array_is_the_callers_again(n: int) -> None:
    async with aioascend.Session(identity(n), depth=1) as session:
        x = np.empty((n, 2), np.float32)[:, 0]
        tickets = []
        for value in range(8):
            x[:] = value
            tickets.append(await session.submit(x))
            x[:] = -1
        for value, ticket in enumerate(tickets):
            assert ((await ticket)[0] == value).all()


@pytest.mark.parametrize("n", [SMALL, LARGE])
async def test_after_infer_an_array_is_the_callers_again(n: int) -> None:
    async with aioascend.Session(identity(n), depth=2) as session:

        async def one(start: int) -> None:
            x = np.empty(n, np.float32)
            for value in range(start, start + 6):
                x[:] = value
                outputs = await session.infer(x)
                x[:] = -1
                assert (outputs[0] == value).all()
                outputs[0][:] = -2  # the caller's too

        await asyncio.gather(*(one(10 * number) for number in range(4)))


@pytest.mark.parametrize("n", [SMALL, LARGE])
@pytest.mark.parametrize("door", ["infer", "submit"])
async def test_after_a_cancel_an_array_is_the_callers_again(n: int, door: str) -> None:
    chance = random.Random(n)
    async with aioascend.Session(identity(n), depth=1) as session:
        others = [asyncio.ensure_future(session.infer(np.full(n, value, np.float32))) for value in range(3)]
        wide = np.ones((n, 2), np.float32)
        for _ in range(20):
            task = asyncio.ensure_future(getattr(session, door)(wide[:, 0]))
            await asyncio.sleep(chance.random() * 0.004)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            del task
            wide.resize((n, 2), refcheck=True)  # raises while anybody holds the array
            wide[:] = np.nan
        for value, other in enumerate(others):
            assert ((await other)[0] == value).all()
        assert ((await session.infer(np.ones(n, np.float32)))[0] == 1).all()


@pytest.mark.parametrize("end", ["infer", "submit", "timeout", "two cancels", "sync timeout"])
async def test_a_call_that_ends_in_the_middle_of_a_copy_returns_when_the_copy_has_stopped(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying, go_on = threading.Event(), threading.Event()

    def slow_copy(view: np.ndarray, array: np.ndarray, stop: Callable[[], bool]) -> bool:
        copying.set()
        assert go_on.wait(10)
        return copy_array(view, array, stop)

    async with aioascend.Session(identity(LARGE), depth=1) as session:
        monkeypatch.setattr(pipeline, "copy_array", slow_copy)
        wide = np.ones((LARGE, 2), np.float32)
        if end == "timeout":
            call = session.infer(wide[:, 0], timeout=0.3)
        elif end == "sync timeout":
            call = asyncio.to_thread(session.infer_sync, wide[:, 0], timeout=0.3)
        else:
            call = getattr(session, "submit" if end == "submit" else "infer")(wide[:, 0])
        task = asyncio.ensure_future(call)
        del call
        await eventually(copying.is_set)
        if "timeout" not in end:
            task.cancel()
        if end == "two cancels":
            await asyncio.sleep(0.01)
            task.cancel()
        await asyncio.sleep(0.4 if "timeout" in end else 0.1)
        assert not task.done()  # its array is being read
        go_on.set()
        with pytest.raises(aioascend.DeadlineExceeded if "timeout" in end else asyncio.CancelledError):
            await task
        del task
        gc.collect()
        wide.resize((LARGE, 2), refcheck=True)
        monkeypatch.undo()
        assert ((await session.infer(np.ones(LARGE, np.float32)))[0] == 1).all()
        now = session.statistics()
        assert (now.completed, now.cancelled + now.expired) == (1, 1)


@pytest.mark.parametrize("n", [SMALL, LARGE])
async def test_an_array_nobody_else_refers_to_lives_until_it_was_used_and_no_longer(n: int) -> None:
    references = []

    def make() -> np.ndarray:
        array = np.full(n, 7, np.float32)
        references.append(weakref.ref(array))
        return array

    async with aioascend.Session(identity(n), depth=1) as session:
        busy = [asyncio.ensure_future(session.infer(np.zeros(n, np.float32))) for _ in range(3)]
        task = asyncio.create_task(session.infer(make()))
        ticket = await session.submit(make())
        gc.collect()
        assert references[1]() is None  # copied
        _ballast = np.ones(100 << 20, np.uint8)
        for outputs in (await task, await ticket):
            assert (outputs[0] == 7).all()
        await asyncio.gather(*busy)
        await eventually(lambda: references[0]() is None)


async def test_neither_a_result_nor_an_error_that_is_kept_holds_the_inputs() -> None:
    references = []

    def make(index: int) -> np.ndarray:
        array = np.array([index])
        references.append(weakref.ref(array))
        return array

    async with aioascend.Session(kit.out_of_bounds()) as session:
        kept: list[object] = []
        for door in (session.infer, session.infer):
            for index in (1, 9):
                try:
                    kept.append(await door(make(index)))
                except aioascend.ExecutionFailed as error:
                    kept.append(error)
        ticket = await session.submit(make(9))
        with pytest.raises(aioascend.ExecutionFailed) as failure:
            await ticket
        kept += [ticket, failure]
        with pytest.raises(aioascend.DeadlineExceeded) as late:
            await session.infer(make(1), timeout=0)
        kept.append(late)
        for wrong in (make(1)[0:0], [make(1), make(2)], Unwilling()):
            with pytest.raises(aioascend.InvalidInput) as refused:
                await session.submit(wrong)
            kept.append(refused)
        del wrong
        await eventually(lambda: all(reference() is None for reference in references))
        assert len(kept) == 10


class Unwilling:
    """Something that numpy cannot take for an array, and says so with an exception of its own."""

    def __array__(self, *_: object) -> np.ndarray:
        raise LookupError("no array here")


async def test_what_was_awaited_stays_however_often_it_is_awaited() -> None:
    async with aioascend.Session(identity(4)) as session:
        ticket = await session.submit(np.full(4, 3, np.float32))
        first = await ticket
        for value in range(20):
            await session.infer(np.full(4, value, np.float32))
        assert first[0].tolist() == [3] * 4
        assert (await ticket) is first
        first[0][:] = 8  # into the caller's own array
        assert (await session.infer(np.full(4, 3, np.float32)))[0].tolist() == [3] * 4
