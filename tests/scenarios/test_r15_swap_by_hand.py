"""R15: one model takes over from another under load: no answer is lost, none is of neither model.

A swap in one call is not offered yet. What is promised today is what it is made of: a second session is opened beside
the first, new requests go to it, and closing the first one drains it. A model that does not load disturbs nobody.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from tests import kit


async def test_16_callers_while_the_model_is_swapped_and_swapped_again(emulator: Emulator, tmp_path: Path) -> None:
    current = aioascend.Session(kit.swap(1))
    shifts = {current: 1}
    await current.open()
    free = free_memory(emulator)
    answers: set[float] = set()
    stop = False

    async def caller(number: int) -> int:
        count = 0
        while not stop:
            session, value = current, np.float32(number * 1000 + count % 1000)
            outputs = await session.infer(np.full(4, value, np.float32))
            assert (outputs[0] - value).tolist() == [shifts[session]] * 4  # of the model it began on
            answers.add(shifts[session])
            count += 1
        return count

    callers = [asyncio.create_task(caller(number)) for number in range(16)]
    for turn in range(12):
        shift = 1 if turn % 2 else 2
        new = aioascend.Session(kit.swap(shift))
        shifts[new] = shift
        await new.open()
        old, current = current, new
        await old.aclose()  # drains
        await asyncio.sleep(0.01)
    for path in kit.bad_files(tmp_path).values():
        with pytest.raises(aioascend.ModelLoadError):
            await aioascend.Session(path).open()
        await asyncio.sleep(0.005)
    stop = True
    assert min(await asyncio.gather(*callers)) > 12
    assert answers == {1, 2}
    async with aioascend.Device("emulator:0") as device:
        await device.trim_memory()  # what the models that were swapped out have left for the next
    assert free_memory(emulator) == free
    await current.aclose()


def free_memory(emulator: Emulator) -> int:
    """Bytes free on device 0, which is open."""
    assert emulator.acl.rt.set_device(0) == 0
    free, _, ret = emulator.acl.rt.get_mem_info(0)
    assert (ret, emulator.acl.rt.reset_device(0)) == (0, 0)
    return int(free)
