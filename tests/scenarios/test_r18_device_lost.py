"""R18: a device is lost, faults or hangs: its own requests fail at once and by name, the other device never notices."""

from __future__ import annotations

import asyncio
import time

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from tests import kit
from tests.waiting import eventually

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
ANSWER = X * kit.POS_WEIGHT
CLOSED = 10.0  # "within 5 s", on a machine that others use too

pytestmark = pytest.mark.logs_errors


@pytest.mark.emulated(profile=Profile(compute_default=0.005))
@pytest.mark.parametrize("way", ["callback", "event"])
@pytest.mark.parametrize("recoverable", [True, False], ids=["comes back", "lost for good"])
async def test_one_of_two_devices_is_lost_with_50_requests_in_flight(
    emulator: Emulator, standing, way: str, recoverable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    session0 = aioascend.Session(kit.pos(), devices="emulator:0")
    session1 = aioascend.Session(kit.pos(), devices="emulator:1")
    async with session0, standing(session0, X, ANSWER):
        await session1.open()
        np.testing.assert_array_equal((await session1.infer(X))[0], ANSWER)
        emulator.faults.lose_device(1, 507010, recoverable=recoverable, at_task=40)
        with anyio.fail_after(20):
            lost, fine = await asyncio.gather(
                asyncio.gather(*(session1.infer(X) for _ in range(50)), return_exceptions=True),
                asyncio.gather(*(session0.infer(X * i) for i in range(50))),
            )
        for i, outputs in enumerate(fine):
            np.testing.assert_array_equal(outputs[0], ANSWER * i)
        failed = [result for result in lost if isinstance(result, BaseException)]
        assert failed
        for result in lost:
            if isinstance(result, BaseException):
                assert isinstance(result, aioascend.DeviceLost), repr(result)
                assert (result.code, result.device) == (507010, "emulator:1")
                assert "emulator:1" in str(result)
                assert "507010" in str(result)
            else:
                np.testing.assert_array_equal(result[0], ANSWER)
        for outputs in await asyncio.gather(*(session0.infer(X) for _ in range(20))):
            np.testing.assert_array_equal(outputs[0], ANSWER)
        if recoverable:
            await eventually(lambda: session1.ready, seconds=30)
            np.testing.assert_array_equal((await session1.infer(X))[0], ANSWER)
        else:
            assert not session1.ready
            with pytest.raises(aioascend.DeviceLost):
                await session1.infer(X)
        started = time.monotonic()
        await session1.aclose()
        assert time.monotonic() - started < CLOSED


@pytest.mark.usefixtures("emulator")
async def test_a_failed_run_fails_its_own_request_alone(emulator: Emulator, standing) -> None:
    async with aioascend.Session(kit.pos()) as session, standing(session, X, ANSWER):
        emulator.faults.fail_task("execute", 507011, nth=5)
        results = await asyncio.gather(*(session.infer(X * i) for i in range(50)), return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        assert len(failed) <= 1  # the fault was there once: a run that is repeated to find out whose it was may succeed
        for i, result in enumerate(results):
            if not isinstance(result, BaseException):
                np.testing.assert_array_equal(result[0], ANSWER * i)


@pytest.mark.parametrize("code", [507014, 507015, 507018])
async def test_an_ai_core_error_costs_no_other_request_its_answer(emulator: Emulator, standing, code: int) -> None:
    async with aioascend.Session(kit.pos()) as session, standing(session, X, ANSWER):
        emulator.faults.fail_task("execute", code, nth=5)
        with anyio.fail_after(30):
            results = await asyncio.gather(*(session.infer(X * i) for i in range(50)), return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        assert len(failed) <= 1
        for error in failed:
            assert isinstance(error, aioascend.AclError)
            assert error.code == code
        for i, result in enumerate(results):
            if not isinstance(result, BaseException):
                np.testing.assert_array_equal(result[0], ANSWER * i)


@pytest.mark.parametrize("way", ["callback", "event"])
async def test_waits_that_time_out_again_and_again_are_no_failure_of_anybody(
    emulator: Emulator, standing, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    async with aioascend.Session(kit.pos()) as session, standing(session, X, ANSWER):
        for call, code in (("rt.synchronize_event_with_timeout", 507047), ("rt.process_report", 507012)):
            emulator.faults.fail(call, code, times=5)
        with anyio.fail_after(20):
            results = await asyncio.gather(*(session.infer(X * i) for i in range(20)))
        for i, outputs in enumerate(results):
            np.testing.assert_array_equal(outputs[0], ANSWER * i)
        emulator.faults.clear()


@pytest.mark.breaks_rules  # what hangs cannot be waited for: its subscription ends before its callbacks, nothing else
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", ["callback", "event"])
async def test_a_run_that_never_ends_is_noticed_and_the_close_returns(
    emulator: Emulator, standing, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    session0 = aioascend.Session(kit.pos(), devices="emulator:0")
    async with session0, standing(session0, X, ANSWER):
        session1 = aioascend.Session(kit.pos(), devices="emulator:1", stall_timeout=0.3)
        await session1.open()
        await session1.infer(X)
        emulator.faults.hang("execute", device=1)
        with anyio.fail_after(20):
            results = await asyncio.gather(*(session1.infer(X) for _ in range(10)), return_exceptions=True)
        assert any(isinstance(result, aioascend.AclError) for result in results)
        for outputs in await asyncio.gather(*(session0.infer(X) for _ in range(20))):
            np.testing.assert_array_equal(outputs[0], ANSWER)
        started = time.monotonic()
        await session1.aclose()
        assert time.monotonic() - started < CLOSED
    assert {violation.rule for violation in emulator.report().violations} <= {"callback-dropped"}
