"""A session on both routes of the driver: what may take long is called straight in C, on the control thread."""

from __future__ import annotations

import asyncio
import logging
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.driver import choice
from aioascend.driver.routes import ROUTES
from aioascend.emulator import Emulator, Profile, gil
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture(autouse=True)
def nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOASCEND_DRIVER", raising=False)
    monkeypatch.setattr(choice, "_told", set())


class Watched:
    """Notes of every function with two routes how it is called: by which door, on which thread."""

    def __init__(self, emulator: Emulator) -> None:
        self.calls: list[tuple[str, bool, str]] = []
        for route in ROUTES:
            part, _, name = route.pyacl.rpartition(".")
            self._watch(getattr(emulator.acl, part) if part else emulator.acl, name, route.pyacl)

    def _watch(self, module: ModuleType, name: str, pyacl: str) -> None:
        function = getattr(module, name)

        def watched(*args: Any) -> Any:
            self.calls.append((pyacl, not gil.holds("acl." + name), threading.current_thread().name))
            return function(*args)

        setattr(module, name, watched)


SLOW = {route.pyacl for route in ROUTES if route.default == "c" and route.slow}


async def use_everything(model: Path) -> None:
    """What sessions and devices do from open to close."""
    x = np.ones(4, np.float32)
    async with aioascend.Session(model, depth=2, warmup=1) as session:
        await asyncio.gather(*(session.infer(x) for _ in range(8)))
        async with session.request() as request:
            request.inputs["x"][:] = 1
            assert (await request.run())[0].tolist() == [2] * 4
    async with aioascend.Session(kit.add(1)) as session:
        await session.infer(x)
    async with aioascend.Device("emulator:0") as device:
        stream, event = await device.create_stream(), await device.create_event()
        pinned, memory = await device.malloc_host(8), await device.malloc(8)
        await stream.copy(memory, pinned)
        await stream.record(event)
        await event
        await memory.release()
        with pytest.raises(aioascend.ModelLoadError):
            await aioascend.Session(b"neither", devices="emulator:0").open()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "modèl.onnx"
    path.write_bytes(kit.add(1))
    return path


@pytest.mark.parametrize("completion", ["callback", "event"], indirect=True)
async def test_every_call_that_may_take_long_is_made_in_c_and_on_the_control_thread(
    emulator: Emulator, model: Path, completion: str
) -> None:
    watched = Watched(emulator)
    await use_everything(model)

    slow = [call for call in watched.calls if call[0] in SLOW]
    used = {name for name, _, _ in slow}
    assert used >= SLOW - {
        "finalize", "rt.memcpy", "mdl.query_size", "mdl.load_from_file_with_mem", "mdl.load_from_mem_with_mem",
        "rt.unsubscribe_report",
    }  # fmt: skip
    assert ("rt.unsubscribe_report" in used) == (completion == "callback")
    assert [call for call in slow if not call[1]] == []
    assert {thread for _, _, thread in slow} == {"aioascend-control-emulator:0"}
    quick = [call for call in watched.calls if call[0] in ("rt.memcpy_async", "mdl.execute_async")]
    assert quick
    assert [call for call in quick if call[1]] == []


async def test_the_c_route_can_be_forced_for_submissions_too(
    emulator: Emulator, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", "c")
    watched = Watched(emulator)
    await use_everything(model)

    assert {"rt.memcpy_async", "mdl.execute_async", "rt.set_context"} < {name for name, _, _ in watched.calls}
    assert [call for call in watched.calls if not call[1]] == []


async def test_pyacl_can_be_forced_for_everything_and_its_cost_is_told(
    emulator: Emulator, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", "pyacl")
    watched = Watched(emulator)
    with caplog.at_level(logging.WARNING, "aioascend.driver"):
        await use_everything(model)

    released = {"rt.synchronize_stream", "rt.synchronize_stream_with_timeout", "rt.synchronize_device"}
    assert [call for call in watched.calls if call[1] and call[0] not in released] == []
    (record,) = [record for record in caplog.records if record.name == "aioascend.driver"]
    assert "AIOASCEND_DRIVER=pyacl" in record.getMessage()
    assert "aclmdlLoadFromFile" in record.getMessage()


async def test_another_value_is_told_to_who_opens_a_session(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", "cffi")
    with pytest.raises(aioascend.InvalidInput, match=r'wanted "pyacl" .* or "c"'):
        await aioascend.Session(model).open()


@pytest.mark.parametrize("way", ["pyacl", "c", None])
@pytest.mark.parametrize(
    "fault, pyacl, c",
    [
        ("acl.rt.malloc#1+=207001", "acl.rt.malloc(", "aclrtMalloc("),  # asked for again before anybody is refused
        ("acl.rt.malloc_host#2+=207001", "acl.rt.malloc_host(", "aclrtMallocHost("),
        ("acl.rt.create_context=207001", "acl.rt.create_context", "aclrtCreateContext"),
        ("acl.rt.set_device=207001", "acl.rt.set_device", "aclrtSetDevice"),
        ("acl.init=207001", "acl.init", "aclInit"),
    ],
)
async def test_a_fault_strikes_whichever_route_a_call_takes(
    emulator: Emulator, model: Path, monkeypatch: pytest.MonkeyPatch, fault: str, pyacl: str, c: str, way: str | None
) -> None:
    if way is not None:
        monkeypatch.setenv("AIOASCEND_DRIVER", way)
    emulator.faults.parse(fault)
    with pytest.raises(aioascend.OutOfMemory) as caught:
        await aioascend.Session(model).open()
    assert caught.value.call.startswith(pyacl if way == "pyacl" else c)
    assert caught.value.detail.startswith("E207001: acl.")
    emulator.faults.clear()
    async with aioascend.Session(model) as session:
        assert (await session.infer(np.zeros(4, np.float32)))[0].tolist() == [1] * 4


async def test_a_load_that_fails_in_c_is_told_with_its_message(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.om"
    broken.write_bytes(b"\x08\x07broken")
    with pytest.raises(aioascend.ModelLoadError) as caught:
        await aioascend.Session(broken, shapes={}).open()
    assert "broken.om" in str(caught.value)


# -- how long the caller's loop stands still --------------------------------------------------------------------------

LOADING = 1.0


async def largest_gap(work: Callable[[], Any]) -> float:
    """The largest time between two turns of a 5 ms ticker on this loop, while `work` runs."""
    gaps = [0.0]

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.005)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0.02)
    try:
        await work()
        await asyncio.sleep(0.01)
    finally:
        ticker.cancel()
    return max(gaps)


async def open_and_close(model: Path) -> None:
    started = time.perf_counter()
    async with aioascend.Session(model, depth=1):
        assert time.perf_counter() - started >= LOADING


HOLDING = Profile(parse=LOADING, malloc=0.05, launch=0.001, hold_gil=True)


@pytest.mark.slow
@pytest.mark.emulated(profile=HOLDING)
async def test_a_load_of_a_second_leaves_the_loop_of_the_caller_alone(model: Path) -> None:
    gaps = [await largest_gap(lambda: open_and_close(model)) for _ in range(3)]

    assert statistics.median(gaps) < LOADING / 4, gaps


@pytest.mark.slow
@pytest.mark.emulated(profile=HOLDING)
async def test_through_pyacl_the_same_load_stops_it_and_that_was_told(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", "pyacl")
    with caplog.at_level(logging.WARNING, "aioascend.driver"):
        gap = await largest_gap(lambda: open_and_close(model))

    assert gap >= LOADING * 0.9
    assert [record.levelname for record in caplog.records if record.name == "aioascend.driver"] == ["WARNING"]
