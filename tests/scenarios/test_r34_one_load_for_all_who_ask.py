"""R34: many ask for the same unopened session at once: it is loaded once, and all are served or all get the error.

A hub that loads models by name on their first request is not offered yet; a session that several tasks open is.
"""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

import aioascend
from aioascend.testing import StubDriver, stubbed

X = np.zeros(4, np.float32)


def slowly(stub: StubDriver) -> None:
    """Loading takes 0.1 s."""
    load = stub.acl.mdl.load_from_mem

    def slow(pointer: int, size: int) -> object:
        time.sleep(0.1)
        return load(pointer, size)

    stub.acl.mdl.load_from_mem = slow


async def ask(session: aioascend.Session) -> tuple[int, ...]:
    await session.open()
    return (await session.infer(X))[0].shape


async def test_20_tasks_and_threads_share_one_load() -> None:
    with stubbed() as stub:
        slowly(stub)
        session = aioascend.Session(stub.model, devices="npu:0")
        results = await asyncio.gather(
            *(ask(session) for _ in range(20)), *(asyncio.to_thread(session.open_sync) for _ in range(4))
        )
        assert results[:20] == [(4,)] * 20
        assert stub.counts["acl.mdl.load_from_mem"] == 1
        await session.aclose()
        stub.assert_balanced()


async def test_when_the_load_fails_all_get_the_error_and_a_later_try_loads_anew() -> None:
    with stubbed() as stub:
        slowly(stub)
        stub.fail("acl.mdl.load_from_mem", 545001)
        session = aioascend.Session(stub.model, devices="npu:0")
        results = await asyncio.gather(*(ask(session) for _ in range(20)), return_exceptions=True)
        assert [type(result) for result in results] == [aioascend.ModelLoadError] * 20
        assert stub.counts["acl.mdl.load_from_mem"] == 1
        with pytest.raises(aioascend.SessionClosed, match="make a new one"):
            await session.open()
        async with aioascend.Session(stub.model, devices="npu:0") as again:
            assert (await again.infer(X))[0].shape == (4,)
        assert stub.counts["acl.mdl.load_from_mem"] == 2
        stub.assert_balanced()


async def test_one_that_gives_up_does_not_take_the_load_from_the_others() -> None:
    with stubbed() as stub:
        slowly(stub)
        session = aioascend.Session(stub.model, devices="npu:0")
        tasks = [asyncio.create_task(ask(session)) for _ in range(20)]
        await asyncio.sleep(0.02)
        tasks[0].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1:] == [(4,)] * 19
        assert stub.counts["acl.mdl.load_from_mem"] == 1
        await session.aclose()
        stub.assert_balanced()
