"""R27: an input that nobody else refers to lives until the device has it, and no longer."""

from __future__ import annotations

import asyncio
import gc
import weakref

import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.mark.parametrize("n", [24, 1 << 20], ids=["copied on the device thread", "copied by a worker"])
@pytest.mark.parametrize("door", ["infer", "submit", "view"])
async def test_made_for_the_call_collected_and_the_memory_used_again(standing, n: int, door: str) -> None:
    good = np.arange(n, dtype=np.float32)
    async with aioascend.Session(kit.identity(1, (n,)), depth=1) as session, standing(session, good, good):
        gone: list[weakref.ref[np.ndarray]] = []

        def make(value: int) -> np.ndarray:
            x = np.full(2 * n, value, np.float32)
            gone.append(weakref.ref(x))
            return x[::2] if door == "view" else x[:n].copy() if door == "infer" else x[:n]

        async def submit(value: int) -> aioascend.Outputs:
            return await (await session.submit(make(value)))

        tasks = [
            asyncio.create_task(submit(value) if door == "submit" else session.infer(make(value))) for value in range(8)
        ]
        await asyncio.sleep(0)
        gc.collect()
        waste = [np.full(25 << 18, -1, np.float32) for _ in range(4)]  # 100 MB, where a freed input would have been
        for value, outputs in enumerate(await asyncio.gather(*tasks)):
            assert (outputs[0] == value).all()
        del tasks, waste
        assert [reference() is None for reference in gone] == [True] * 8
