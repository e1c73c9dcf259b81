"""R22: a session on device 1 makes no call, from any of its threads, with device 0 current."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aioascend
from aioascend.testing import stubbed


@pytest.mark.parametrize("completion", ["callback", "event"])
async def test_open_a_hundred_runs_and_close_on_device_1_of_2(completion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", completion)
    x = np.zeros((1 << 19,), np.float32)  # of the size that a worker copies
    spec = [("x", "float32", x.shape)]
    with stubbed(devices=2, inputs=spec, outputs=[("y", "float32", x.shape)]) as stub:
        async with aioascend.Session(stub.model, devices="npu:1") as session:
            await asyncio.gather(*(session.infer(x) for _ in range(100)))
            async with session.request() as request:
                await request.run()
            made = {call.arguments for call in stub.log if call.function == "acl.rt.create_context"}
            of_device_1 = {one.handle for one in stub.live("context")}
        assert made == {(1,)}
        assert {call.arguments for call in stub.log if call.function == "acl.rt.set_device"} == {(1,)}
        threads = {call.thread.partition("-npu")[0] for call in stub.log}
        assert {"aioascend-device", "aioascend-control"} < threads
        # Before its context is made the control thread has that of set_device(1), the other threads have none.
        first = min(call.number for call in stub.log if call.context in of_device_1)
        last = max(call.number for call in stub.log if call.function == "acl.rt.destroy_context")
        used = {call.context for call in stub.log if first <= call.number < last}
        assert used - {None} == of_device_1
        assert {call.function for call in stub.log if call.context is None} <= {
            "acl.init", "acl.rt.get_device_count", "acl.get_soc_name", "acl.rt.set_device", "acl.get_recent_err_msg",
            "acl.rt.destroy_context", "acl.rt.reset_device",  # logged when the context is gone
        }  # fmt: skip
        stub.assert_balanced()
