"""R20: a model id runs on one stream only; what runs side by side are instances of their own."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from aioascend.testing import stubbed
from tests import kit

X = np.zeros(4, np.float32)


@pytest.mark.parametrize("instances", [1, 4])
async def test_every_instance_has_a_compute_stream_of_its_own(instances: int) -> None:
    with stubbed() as stub:
        async with aioascend.Session(stub.model, devices="npu:0", instances=instances) as session:
            await asyncio.gather(*(session.infer(X) for _ in range(32)))
            streams = defaultdict(set)
            for call in stub.log:
                if call.function == "acl.mdl.execute_async":
                    streams[call.arguments[0]].add(call.arguments[3])
            assert len(streams) == instances
            assert all(len(found) == 1 for found in streams.values())
            assert len(set.union(*streams.values())) == instances
        stub.assert_balanced()


@pytest.mark.emulated(concurrent_executes=4)
async def test_32_at_once_on_four_instances_are_right_and_break_no_rule(emulator: Emulator, standing) -> None:
    async with aioascend.Session(kit.slow(4, 64), instances=4) as session:
        x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
        async with standing(session, x, x):
            results = await asyncio.gather(*(session.infer(x + i) for i in range(64)))
            for i, outputs in enumerate(results):
                np.testing.assert_array_equal(outputs[0], x + i)
    assert "model-on-two-streams" not in {violation.rule for violation in emulator.report().violations}
