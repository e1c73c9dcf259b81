"""R31: memory runs out: the error says at once how much was asked for and how much there is; nothing waits for ever.

Later smaller requests work, and at the end nothing is used.
"""

from __future__ import annotations

import asyncio
import random

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from tests import kit

MIB = 1 << 20
pytestmark = pytest.mark.emulated(memory=64 * MIB)


def free_memory(emulator: Emulator) -> int:
    assert emulator.acl.rt.set_device(0) == 0
    free, _, ret = emulator.acl.rt.get_mem_info(0)
    assert (ret, emulator.acl.rt.reset_device(0)) == (0, 0)
    return int(free)


async def test_full_of_holes_a_large_block_is_refused_with_figures_and_a_small_one_given(emulator: Emulator) -> None:
    random.seed(31)
    async with aioascend.Device("emulator:0") as device:
        blocks = []
        used = 0
        while used < 57 * MIB:
            size = random.choice((64 << 10, 256 << 10, MIB))
            blocks.append(await device.malloc(size))
            used += size
        for block in blocks[::2]:
            await block.release()
        kept = sum(block.nbytes for block in blocks[1::2])
        for size in (48 * MIB, 65 * MIB):  # more than is free in one piece, and more than there is
            with anyio.fail_after(10):
                with pytest.raises(aioascend.OutOfMemory) as caught:
                    await device.malloc(size)
            assert caught.value.code == 207001
            text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
            assert str(size) in text  # asked
            assert str(64 * MIB) in text  # of
            assert "free" in text
        assert free_memory(emulator) <= 64 * MIB - kept
        small = await device.malloc(64 << 10)
        for block in [*blocks[1::2], small]:
            await block.release()
        assert device.memory_statistics().device.used == 0
        await device.trim_memory()
        assert free_memory(emulator) == 64 * MIB


async def test_a_model_that_does_not_fit_says_so_and_a_smaller_one_works(emulator: Emulator) -> None:
    before = None
    async with aioascend.Device("emulator:0") as device:
        before = free_memory(emulator)
        for _ in range(3):
            with pytest.raises(aioascend.OutOfMemory) as caught:
                await aioascend.Session(kit.identity(1, (4 * MIB,)), depth=4).open()
            assert caught.value.code == 207001
        assert free_memory(emulator) == before
        async with aioascend.Session(kit.identity(1, (MIB,)), depth=2) as session:
            x = np.arange(MIB, dtype=np.float32)
            np.testing.assert_array_equal((await session.infer(x))[0], x)
        assert device.memory_statistics().device.used == 0
        await device.trim_memory()
        assert free_memory(emulator) == before


async def test_ten_thousand_blocks_come_and_go(emulator: Emulator) -> None:
    random.seed(7)
    async with aioascend.Device("emulator:0") as device:
        before = free_memory(emulator)
        held: list[aioascend.DeviceBuffer] = []

        async def come_and_go(count: int) -> None:
            for _ in range(count):
                if held and random.random() < 0.5:
                    await held.pop(random.randrange(len(held))).release()
                else:
                    try:
                        held.append(await device.malloc(random.randrange(1, 2 * MIB)))
                    except aioascend.OutOfMemory:
                        await held.pop().release()

        await asyncio.gather(*(come_and_go(2500) for _ in range(4)))
        await asyncio.gather(*(block.release() for block in held))
        assert device.memory_statistics().device.used == 0
        await device.trim_memory()
        assert free_memory(emulator) == before
