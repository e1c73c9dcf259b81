"""R09: cancelling frees the caller at once, and the buffers no earlier than the device is done with them."""

from __future__ import annotations

import asyncio
import random
import time

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from tests import kit
from tests.waiting import eventually

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
EYE = np.eye(700, dtype=np.float32)


@pytest.mark.loops
@pytest.mark.emulated(profile=Profile(compute={"slow": 0.15}))
@pytest.mark.usefixtures("emulator")
async def test_cancelled_during_the_run_with_a_single_place(standing) -> None:
    async with aioascend.Session(kit.named("slow"), depth=1) as session, standing(session, X, X * kit.POS_WEIGHT):
        task = asyncio.create_task(session.infer(X))
        await eventually(lambda: session.statistics().running == 1)
        task.cancel()
        started = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - started < 1
        for value in range(3):
            np.testing.assert_array_equal((await session.infer(X * value))[0], X * value * kit.POS_WEIGHT)
        assert session.statistics().cancelled == 1


@pytest.mark.usefixtures("emulator")
async def test_cancelled_200_times_at_random_moments(standing) -> None:
    """Queue, staging, run, copy-back and the very moment of completion: strict mode sees a buffer used too early."""
    random.seed(9)
    size = 96
    eye = np.eye(size, dtype=np.float32)
    async with aioascend.Session(kit.slow(60, size), depth=2) as session, standing(session, eye, eye):
        started = time.monotonic()
        await asyncio.gather(*(session.infer(eye) for _ in range(20)))
        usual = (time.monotonic() - started) / 20
        given_up = 0

        async def neighbour(value: int) -> None:
            x = np.full((size, size), value, np.float32)
            np.testing.assert_array_equal((await session.infer(x))[0], x)

        for round_ in range(200):
            task = asyncio.create_task(session.infer(eye * round_))
            others = [asyncio.create_task(neighbour(round_ + k / 4)) for k in range(2)]
            await asyncio.sleep(random.random() * 4 * usual)
            task.cancel()
            try:
                np.testing.assert_array_equal((await task)[0], eye * round_)
            except asyncio.CancelledError:
                given_up += 1
            await asyncio.gather(*others)
        assert given_up > 20
        assert session.statistics().cancelled <= given_up


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("steps", range(12))
async def test_cancelled_at_every_step_of_the_loop(standing, steps: int) -> None:
    x = np.zeros(4, np.float32)
    async with aioascend.Session(kit.add(1), depth=1) as session, standing(session, x, x + 1):
        for door in ("infer", "submit", "request"):
            task = asyncio.create_task(_use(session, door, x))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            try:
                assert (await task).tolist() == [1] * 4
            except asyncio.CancelledError:
                pass
            assert (await session.infer(x + 1))[0].tolist() == [2] * 4


async def _use(session: aioascend.Session, door: str, x: np.ndarray) -> np.ndarray:
    if door == "infer":
        return (await session.infer(x))[0]
    if door == "submit":
        return (await (await session.submit(x)))[0]
    async with session.request() as request:
        request.inputs["x"][:] = x
        return (await request.run())[0]


async def test_what_is_cancelled_while_queued_never_reaches_the_device(emulator: Emulator, standing) -> None:
    async with aioascend.Session(kit.slow(40), depth=1) as session, standing(session, EYE, EYE):
        executes = count_calls(emulator, "execute_async")
        first = asyncio.create_task(session.infer(EYE))
        await asyncio.sleep(0.03)
        queued = [asyncio.create_task(session.infer(EYE)) for _ in range(10)]
        await asyncio.sleep(0.01)
        for task in queued:
            task.cancel()
        await asyncio.gather(*queued, return_exceptions=True)
        await first
        assert len(executes) == 1
        assert session.statistics().cancelled == 10


def count_calls(emulator: Emulator, name: str) -> list[tuple[object, ...]]:
    """The arguments of every call of ``acl.mdl.<name>`` from now on."""
    calls: list[tuple[object, ...]] = []
    call = getattr(emulator.acl.mdl, name)

    def counted(*arguments: object) -> object:
        calls.append(arguments)
        return call(*arguments)

    setattr(emulator.acl.mdl, name, counted)
    return calls


@pytest.mark.usefixtures("emulator")
async def test_after_a_cancel_nothing_reads_the_callers_array() -> None:
    """The copy of a large array may be under way: the cancelled call returns when it has stopped."""
    n = 8 << 20
    async with aioascend.Session(kit.identity(1, (n,))) as session:
        wide = np.ones((n, 2), np.float32)
        for delay in (0, 0.001, 0.003, 0.01):
            task = asyncio.create_task(session.infer(wide[:, 0]))
            await asyncio.sleep(delay)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            wide.resize((n, 2), refcheck=True)  # raises while anybody holds the array
