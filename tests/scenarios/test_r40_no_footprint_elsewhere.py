"""R40: a session on device 1 opens nothing on device 0: no context, no memory, no thread."""

from __future__ import annotations

import numpy as np

import aioascend
from aioascend.emulator import Emulator
from aioascend.testing import stubbed
from tests import kit

X = np.zeros(4, np.float32)


async def test_listing_opening_running_and_closing_on_device_1(emulator: Emulator) -> None:
    aioascend.devices()
    async with aioascend.Session(kit.add(1), devices="emulator:1", warmup=1) as session:
        assert (await session.infer(X))[0][0] == 1
        assert {leak.device for leak in emulator.report().leaks} <= {1, -1}
        assert [thread.name for thread in emulator.threads if "0" in thread.name.partition("compute")[0]] == []
        assert emulator.acl.rt.set_device(0) == 0
        free, total, ret = emulator.acl.rt.get_mem_info(0)
        assert (free, ret) == (total, 0)
        assert emulator.acl.rt.reset_device(0) == 0


async def test_as_calls_of_a_machine_with_two() -> None:
    with stubbed(devices=2) as stub:
        aioascend.devices()
        async with aioascend.Session(stub.model, devices="npu:1") as session, aioascend.Device("npu:1") as device:
            await session.infer(X)
            await (await device.malloc(64)).release()
        opening = ("acl.rt.set_device", "acl.rt.create_context", "acl.rt.reset_device")
        assert {call.arguments[0] for call in stub.log if call.function in opening} == {1}
        stub.assert_balanced()
