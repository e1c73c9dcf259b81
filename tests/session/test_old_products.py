"""Products that lack a feature: the same sessions, without a call that the product refuses."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from tests import kit

pytestmark = pytest.mark.emulated(soc_name="Ascend310")


@pytest.fixture(params=["callback", "event"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both completion ways: this chip knows only callbacks that hold their stream, and event waits without an end."""
    monkeypatch.setenv("AIOASCEND_COMPLETION", request.param)


@pytest.mark.usefixtures("way", "emulator")
async def test_requests_are_served_on_an_atlas_300() -> None:
    inputs = [np.full((1, 2, 3, 4), n, np.float32) for n in range(20)]
    async with aioascend.Session(kit.pos(), devices="emulator:0") as session:
        results = await asyncio.gather(*[session.infer(x) for x in inputs])
    for x, outputs in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(outputs[0], x * kit.POS_WEIGHT)


@pytest.mark.usefixtures("way")
async def test_streams_and_events_are_awaited_on_an_atlas_300(emulator: Emulator) -> None:
    async with aioascend.Device("emulator:0") as device:
        stream = await device.create_stream()
        event = await device.create_event()
        await stream.record(event)
        await event
        await stream.callback()
        await stream.synchronize()
    assert not emulator.report().violations
