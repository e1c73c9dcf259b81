"""What the pipeline does on its three streams, and in pinned memory, is judged by the race detector."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile

from .. import kit

pytestmark = pytest.mark.breaks_rules


def replace(emulator: Emulator, function: str, by: Any) -> None:
    setattr(emulator.acl.rt, function, by)


async def test_a_pipeline_without_its_waits_is_refused(emulator: Emulator) -> None:
    replace(emulator, "stream_wait_event", lambda stream, event: 0)
    async with aioascend.Session(kit.add(1)) as session:
        with pytest.raises(aioascend.AclError, match="have no order: record an event"):
            await session.infer(np.zeros(4, np.float32))
    races = [violation for violation in emulator.report().violations if violation.rule == "race"]
    lines = re.findall(r"(\w+)\.py:\d+ in (\w+)", races[0].text)
    assert [file for file, _ in lines][:2] == ["lane", "lane"]  # ours, as no line of the program's is in it


@pytest.mark.emulated(profile=Profile(copy_latency=0.2))
async def test_an_output_that_is_taken_before_its_copy_is_told(emulator: Emulator) -> None:
    def at_once(function: Any, data: Any, block: int, stream: int) -> int:
        function(data)
        return 0

    replace(emulator, "launch_callback", at_once)
    async with aioascend.Session(kit.add(1)) as session:
        outputs = await session.infer(np.zeros(4, np.float32))
        assert np.isnan(outputs[0]).all()
    (race,) = [violation for violation in emulator.report().violations if violation.rule == "race"]
    assert "'s write by acl.rt.memcpy_async" in race.text
    assert "the host's read at" in race.text


@pytest.mark.emulated(profile=Profile(copy_latency=0.5))
async def test_pinned_inputs_that_are_written_while_they_are_copied_are_told(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session, session.request() as request:
        request.inputs["x"][:] = 1
        running = asyncio.ensure_future(request.run())
        await asyncio.sleep(0.05)  # on its way
        request.inputs["x"][:] = 2
        await running
    (changed,) = emulator.report().violations
    assert changed.rule == "changed-while-queued"
    assert "lane.py" in changed.where
