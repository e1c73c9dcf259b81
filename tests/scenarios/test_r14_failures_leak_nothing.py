"""R14: whichever call fails, while loading, running or closing, everything that was made is destroyed.

And an exception that somebody keeps holds neither the model's bytes nor the arrays it was given.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.testing import StubDriver, stubbed
from tests import kit
from tests.scenarios.memory import resident

CODE = 500002
ZEROS = np.zeros(4, np.float32)


@pytest.mark.parametrize("completion", ["callback", "event"])
@pytest.mark.parametrize("ex_events", [True, False], ids=["ex events", "old CANN"])
def test_every_kth_call_of_open_infer_and_close_fails(
    completion: str, ex_events: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", completion)
    kept: list[BaseException] = []
    for k in itertools.count(1):
        with stubbed(ex_events=ex_events) as stub:
            stub.fail_at(k, CODE)
            failed = _life(stub)
            struck = [call for call in stub.log if call.injected]
            if failed is not None:
                kept.append(failed)
                assert isinstance(failed, aioascend.AioascendError)
                assert any(call.function in str(failed) for call in struck), (failed, struck)
            stub.clear()
            assert _life(stub) is None  # a fresh session works
            stub.assert_balanced()
        if not struck:
            break
    assert len(kept) > 30  # opening and running make that many calls that matter


def _life(stub: StubDriver) -> BaseException | None:
    """Open, infer twice and close a session; the error if there was one."""
    session = aioascend.Session(stub.model, devices="npu:0", depth=1)
    try:
        with session:
            for _ in range(2):
                session.infer_sync(ZEROS, timeout=20)
    except aioascend.AioascendError as error:
        return error
    return None


@pytest.mark.usefixtures("emulator")
async def test_200_failing_loads_and_2000_failing_runs(tmp_path: Path, standing) -> None:
    bad = [*kit.bad_files(tmp_path).values(), kit.unknown_operator(), kit.nonzero()]
    kept: list[BaseException] = []
    async with aioascend.Session(kit.out_of_bounds()) as session:
        async with standing(session, np.array([1]), np.array([11], np.float32)):
            for number in range(30):  # caches fill, arenas grow
                await fail_to_load(bad[number % len(bad)], kept)
            await fail_to_run(session, 300, kept)
            gc.collect()
            before = resident()
            for number in range(200):
                await fail_to_load(bad[number % len(bad)], kept)
            await fail_to_run(session, 2000, kept)
            gc.collect()
            grown = resident() - before
        assert len(kept) == 2530
        assert grown < 20 << 20, f"{grown / (1 << 20):.1f} MiB"


async def fail_to_load(model: str | Path | bytes, kept: list[BaseException]) -> None:
    with pytest.raises(aioascend.ModelLoadError) as caught:
        await aioascend.Session(model).open()
    kept.append(caught.value)


async def fail_to_run(session: aioascend.Session, times: int, kept: list[BaseException]) -> None:
    for _ in range(0, times, 20):
        results = await asyncio.gather(*(session.infer(np.array([9])) for _ in range(20)), return_exceptions=True)
        assert all(isinstance(result, aioascend.ExecutionFailed) for result in results)
        kept += [result for result in results if isinstance(result, BaseException)]


class Bytes(bytearray):
    """Bytes that can be referred to weakly."""


@pytest.mark.usefixtures("emulator")
async def test_kept_exceptions_hold_neither_model_bytes_nor_arrays() -> None:
    kept: list[BaseException] = []
    gone: list[weakref.ref[object]] = []

    async def fails(kind: type[BaseException], call: Callable[[Any], Awaitable[object]], argument: object) -> None:
        gone.append(weakref.ref(argument))
        try:
            await call(argument)
        except kind as error:
            kept.append(error)
        del argument, call  # what this frame itself holds

    await fails(aioascend.ModelLoadError, lambda model: aioascend.Session(model).open(), Bytes(kit.unknown_operator()))
    async with aioascend.Session(kit.out_of_bounds()) as session:
        await fails(aioascend.ExecutionFailed, session.infer, np.array([9]))
        for door in (session.infer, session.submit):
            await fails(aioascend.InvalidInput, door, np.zeros(3, np.float32))
        await fails(aioascend.DeadlineExceeded, lambda x: session.infer(x, timeout=0), np.array([1]))
        await fails(aioascend.DeadlineExceeded, lambda x: session.infer(x, timeout=1e-6), np.array([1]))
    assert len(kept) == 6
    gc.collect()
    assert [reference() is not None for reference in gone] == [False] * 6
