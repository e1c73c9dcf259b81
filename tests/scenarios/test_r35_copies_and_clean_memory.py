"""R35: every asynchronous copy is aligned and between the device and pinned memory of ours; padding carries nothing."""

from __future__ import annotations

import asyncio
import ctypes

import numpy as np
import pytest

import aioascend
from aioascend.testing import StubDriver, stubbed

INPUTS = [("a", "uint8", (5,)), ("b", "float32", (3,)), ("c", "uint8", (65,))]
OUTPUTS = [("y", "float16", (7,)), ("z", "uint8", (1,))]


class Ledger:
    """Where the stub's memory lies, and every copy into or out of it."""

    def __init__(self, stub: StubDriver) -> None:
        self.pinned: dict[int, int] = {}
        self.device: dict[int, int] = {}
        self.copies: list[tuple[int, int, int, int, int, int]] = []
        rt = stub.acl.rt
        malloc, malloc_host, copy = rt.malloc, rt.malloc_host, rt.memcpy_async

        def note_malloc(size: int, policy: int) -> tuple[int, int]:
            pointer, ret = malloc(size, policy)
            ctypes.memset(pointer, 0xAA, size)  # fresh device memory is not cleared
            self.device[pointer] = size
            return pointer, ret

        def note_malloc_host(size: int) -> tuple[int, int]:
            pointer, ret = malloc_host(size)
            ctypes.memset(pointer, 0xAA, size)
            self.pinned[pointer] = size
            return pointer, ret

        def note_copy(*arguments: int) -> int:
            self.copies.append(arguments)  # type: ignore[arg-type]
            return int(copy(*arguments))

        rt.malloc, rt.malloc_host, rt.memcpy_async = note_malloc, note_malloc_host, note_copy

    def inside(self, where: dict[int, int], address: int, size: int) -> bool:
        return any(start <= address and address + size <= start + length for start, length in where.items())


@pytest.mark.parametrize("door", ["infer", "submit", "request"])
async def test_whatever_the_caller_gives(door: str) -> None:
    with stubbed(inputs=INPUTS, outputs=OUTPUTS) as stub:
        ledger = Ledger(stub)
        async with aioascend.Session(stub.model, devices="npu:0", depth=2) as session:
            for value in (255, 1):  # ones after all bits set: anything that is left over would show
                given = {
                    "a": np.full(10, value, np.uint8)[::2],
                    "b": np.full(13, value, np.uint8)[1:].view(np.float32),  # not aligned
                    "c": np.full((65,), value, np.uint8),
                }
                await asyncio.gather(*(use(session, door, given) for _ in range(6)))
        assert len(ledger.copies) == 2 * 12
        for target, most, source, count, kind, _ in ledger.copies:
            assert target % 64 == source % 64 == 0
            assert count <= most
            to_device = kind == 1
            assert ledger.inside(ledger.device if to_device else ledger.pinned, target, count)
            assert ledger.inside(ledger.pinned if to_device else ledger.device, source, count)
        stub.assert_balanced()


async def use(session: aioascend.Session, door: str, given: dict[str, np.ndarray]) -> None:
    if door == "infer":
        await session.infer(given)
    elif door == "submit":
        await (await session.submit(given))
    else:
        async with session.request() as request:
            for name, array in given.items():
                request.inputs[name][:] = array
            await request.run()


async def test_between_and_behind_the_inputs_the_device_gets_zeros() -> None:
    with stubbed(inputs=INPUTS, outputs=OUTPUTS) as stub:
        ledger = Ledger(stub)
        seen: list[bytes] = []
        copy = stub.acl.rt.memcpy_async

        def look(*arguments: int) -> int:
            if arguments[4] == 1:
                seen.append(ctypes.string_at(arguments[2], arguments[3]))
            return int(copy(*arguments))

        stub.acl.rt.memcpy_async = look
        async with aioascend.Session(stub.model, devices="npu:0", depth=1) as session:
            for value in (255, 255, 1):
                floats = np.full(12, value, np.uint8).view(np.float32)
                await session.infer([np.full(5, value, np.uint8), floats, np.full(65, value, np.uint8)])
        assert ledger.copies
        for block, value in zip(seen, (255, 255, 1), strict=True):
            assert sorted(set(block)) == [0, value]
            assert block.count(bytes([value])) == 5 + 12 + 65
        stub.assert_balanced()
