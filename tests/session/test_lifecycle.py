"""Opening, closing, and everything people do in between and instead."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.runtime.background import done_within
from aioascend.testing import emulated
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")

ONES = np.ones(4, np.float32)


@pytest.mark.loops
async def test_every_way_to_open_and_close() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        assert session.ready
        assert (await session.infer(ONES))[0][0] == 2
    assert not session.ready

    session = aioascend.Session(kit.add(1))
    await session.open()
    await session.open()  # nothing to do
    assert (await session.infer(ONES))[0][0] == 2
    await session.aclose()
    await session.aclose()

    unused = aioascend.Session(kit.add(1))
    await unused.aclose()
    with pytest.raises(aioascend.SessionClosed, match="cannot be opened again"):
        await unused.open()


def test_the_synchronous_ways() -> None:
    with aioascend.Session(kit.add(1)) as session:
        assert session.infer_sync(ONES)[0][0] == 2
    session = aioascend.Session(kit.add(1))
    session.open_sync()
    session.close_sync()
    session.close_sync()

    async def inside() -> None:
        for door in (aioascend.Session(kit.add(1)).open_sync, session.close_sync):
            with pytest.raises(aioascend.BlockingCallInLoop, match="would block the running event loop"):
                door()

    asyncio.run(inside())


async def test_a_session_that_is_not_open_says_what_to_do() -> None:
    session = aioascend.Session(kit.add(1))
    for use in (lambda: session.inputs, lambda: session.outputs, session.request):
        with pytest.raises(aioascend.SessionClosed, match="is not open yet: use `async with session:`"):
            use()
    with pytest.raises(aioascend.SessionClosed, match="is not open yet"):
        await session.infer(ONES)
    async with session:
        pass
    with pytest.raises(aioascend.SessionClosed, match="closed"):
        await session.infer(ONES)
    with pytest.raises(aioascend.SessionClosed):
        await session.submit(ONES)


def test_awaiting_without_an_asyncio_loop_says_so() -> None:
    with aioascend.Session(kit.add(1)) as session:
        for call in (session.infer(ONES), session.submit(ONES)):
            with pytest.raises(aioascend.NoEventLoop, match="running asyncio event loop"):
                call.send(None)  # what another async library would do
        assert session.infer_sync(ONES)[0][0] == 2


async def test_repr_and_statistics_tell_the_state(tmp_path: Path) -> None:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(kit.add(1))
    session = aioascend.Session(path, depth=2, instances=2)
    assert repr(session) == "<aioascend.Session tiny.onnx on auto: new>"
    async with session:
        await session.infer(ONES)
        assert repr(session) == (
            "<aioascend.Session tiny.onnx on emulator:0: open, 0/4 running, 0 waiting, 1 completed>"
        )
        now = session.statistics()
        assert (now.state, now.device, now.depth, now.instances, now.completed) == ("open", "emulator:0", 2, 2, 1)
    assert repr(session) == "<aioascend.Session tiny.onnx on emulator:0: closed>"


async def test_two_sessions_share_a_device_and_the_last_one_closes_it(emulator: Emulator) -> None:
    first = aioascend.Session(kit.add(1))
    second = aioascend.Session(kit.add(2))
    await asyncio.gather(first.open(), second.open())
    assert (await first.infer(ONES))[0][0] == 2
    assert (await second.infer(ONES))[0][0] == 3
    await first.aclose()
    assert (await second.infer(ONES))[0][0] == 3
    assert emulator.threads
    await second.aclose()
    await eventually(lambda: not emulator.threads)
    async with aioascend.Session(kit.add(1)) as again:
        assert (await again.infer(ONES))[0][0] == 2


async def test_sessions_on_two_devices(emulator: Emulator) -> None:
    async with (
        aioascend.Session(kit.add(1), devices="emulator:0") as first,
        aioascend.Session(kit.add(2), devices="emulator:1") as second,
    ):
        assert (first.device, second.device) == ("emulator:0", "emulator:1")
        results = await asyncio.gather(*(s.infer(ONES) for s in (first, second) * 20))
        assert [result[0][0] for result in results] == [2, 3] * 20


async def test_opening_and_closing_again_and_again_leaves_nothing(emulator: Emulator) -> None:
    for _ in range(10):
        async with aioascend.Session(kit.add(1), warmup=1) as session:
            assert session.statistics().completed == 1
    free, total, ret = 0, 0, 0
    assert emulator.acl.rt.set_device(0) == 0
    free, total, ret = emulator.acl.rt.get_mem_info(0)
    assert (free, ret) == (total, 0)
    assert emulator.acl.rt.reset_device(0) == 0


async def test_close_finishes_what_was_taken() -> None:
    session = aioascend.Session(kit.slow(10))
    await session.open()
    x = np.eye(700, dtype=np.float32)
    tasks = [asyncio.create_task(session.infer(x)) for _ in range(8)]
    await asyncio.sleep(0.01)
    await session.aclose()
    for outputs in await asyncio.gather(*tasks):
        np.testing.assert_array_equal(outputs[0], x)


@pytest.mark.emulated(profile=Profile(compute_default=0.2))
async def test_close_without_drain_gives_up_what_is_queued() -> None:
    session = aioascend.Session(kit.add(1), depth=1)
    await session.open()
    tasks = [asyncio.create_task(session.infer(ONES)) for _ in range(8)]
    await eventually(lambda: session.statistics().running == 1)
    await session.aclose(drain=False)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    kinds = [type(result).__name__ for result in results]
    assert set(kinds) == {"Outputs", "SessionClosed"}
    assert kinds == sorted(kinds)  # those that were running finished, all later ones were given up


@pytest.mark.emulated(profile=Profile(compute_default=0.3))
async def test_close_without_drain_returns_when_the_session_is_closed() -> None:
    session = aioascend.Session(kit.add(1))
    await session.open()
    task = asyncio.create_task(session.infer(ONES))
    await eventually(lambda: session.statistics().running == 1)
    await session.aclose(drain=False)
    assert session.statistics().state == "closed"
    assert (await task)[0][0] == 2


async def test_waiting_for_a_thread_lasts_as_long_as_was_asked_for() -> None:
    never: Future[None] = Future()
    began = time.monotonic()
    assert not await done_within(never, 0.1)
    assert time.monotonic() - began > 0.09


async def test_an_exception_in_the_block_gives_up_what_is_queued() -> None:
    x = np.eye(700, dtype=np.float32)
    tasks: list[asyncio.Task[Any]] = []

    async def fail() -> None:
        async with aioascend.Session(kit.slow(10), depth=1) as session:
            tasks.extend(asyncio.create_task(session.infer(x)) for _ in range(6))
            await asyncio.sleep(0.01)
            raise LookupError("the user's own")

    with pytest.raises(LookupError, match="the user's own"):
        await fail()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert any(isinstance(result, aioascend.SessionClosed) for result in results)


@pytest.mark.emulated(profile=Profile(parse=0.2))
async def test_a_cancelled_open_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    path.write_bytes(kit.big(8))
    for delay in (0, 0.001, 0.005, 0.01, 0.015):
        task = asyncio.create_task(aioascend.Session(path).open())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()
    await eventually(lambda: not aioascend.runtime.process.open_devices())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_session_that_is_dropped_closes_itself() -> None:
    session = aioascend.Session(kit.add(1))
    await session.open()
    await session.infer(ONES)
    del session
    gc.collect()
    await eventually(lambda: not aioascend.runtime.process.open_devices())


async def test_dropping_an_open_session_warns() -> None:
    session = aioascend.Session(kit.add(1))
    await session.open()
    kept = [session]
    del session
    with pytest.warns(ResourceWarning, match="was never closed"):
        kept.clear()
    await eventually(lambda: not aioascend.runtime.process.open_devices())


@pytest.mark.emulated(memory=64 << 20)
async def test_a_model_that_does_not_fit_says_so_and_gives_everything_back() -> None:
    from onnx import TensorProto

    with pytest.raises(aioascend.OutOfMemory) as caught:
        await aioascend.Session(kit.identity(TensorProto.FLOAT, (4 << 20,)), depth=4).open()
    assert caught.value.code == 207001
    async with aioascend.Session(kit.identity(TensorProto.FLOAT, (1 << 20,)), depth=2) as session:
        x = np.arange(1 << 20, dtype=np.float32)
        np.testing.assert_array_equal((await session.infer(x))[0], x)


async def test_a_failing_warmup_fails_the_open() -> None:
    async with aioascend.Session(kit.out_of_bounds(), warmup=2) as session:
        assert session.statistics().completed == 2
    with pytest.raises(aioascend.ExecutionFailed):
        await aioascend.Session(kit.out_of_bounds(), examples={"index": np.array([9])}, warmup=1).open()
    await eventually(lambda: not aioascend.runtime.process.open_devices())


@pytest.mark.loops
async def test_shutdown_finalises_once_everything_is_closed(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        with pytest.raises(aioascend.AioascendError, match="close every session first: emulator:0 in use"):
            aioascend.shutdown()
        await session.infer(ONES)
    aioascend.shutdown()
    assert emulator.acl.finalize() == 100037  # it was finalised already
    aioascend.shutdown()
    async with aioascend.Session(kit.add(1)) as session:
        assert (await session.infer(ONES))[0][0] == 2


def run_script(body: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    prelude = """
        import asyncio, os, sys, threading
        import numpy as np
        import aioascend
        from tests import kit
        ONES = np.ones(4, np.float32)
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=Path(__file__).parents[2],
    )


def test_threads_that_outlive_the_main_thread_go_on_using_a_session() -> None:
    for size in (4, 2_000_000):
        done = run_script(f"""
            from onnx import TensorProto
            session = aioascend.Session(kit.identity(TensorProto.FLOAT, ({size},)), devices="emulator:0")
            session.open_sync()
            main = threading.current_thread()
            x = np.ones({size}, np.float32)
            def work():
                session.infer_sync(x)
                main.join()
                for _ in range(3):
                    session.infer_sync(x)
                session.close_sync()
                print("done")
            threading.Thread(target=work).start()
        """)
        assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_threads_of_ours_have_telling_names(emulator: Emulator) -> None:
    with aioascend.Session(kit.add(1)):
        names = {thread.name for thread in threading.enumerate()}
        assert {"aioascend-device-emulator:0", "aioascend-report-emulator:0"} <= names


async def test_a_device_that_is_not_there_or_not_named_is_told_and_leaves_the_process_usable() -> None:
    good = kit.add(1)
    cases: list[tuple[str, type[Exception], str]] = [
        ("emulator:7", aioascend.BackendUnavailable, "no device emulator:7: there is"),
        ("gpu:0", aioascend.InvalidInput, "unknown device 'gpu:0': wanted"),
        ("emulator:0,emulator:1", aioascend.InvalidInput, "name one"),
    ]
    for devices, error, message in cases:
        session = aioascend.Session(good, devices=devices)
        with pytest.raises(error, match=message):
            await session.open()
        with pytest.raises(aioascend.SessionClosed):
            await session.infer(ONES)
        await session.aclose()
    async with aioascend.Session(good) as session:
        assert (await session.infer(ONES))[0][0] == 2


async def test_callers_of_runs_that_a_close_has_ended_are_told_so() -> None:
    async with aioascend.Session(kit.add(1)) as other:
        # Really computed: a run that only waits for the time of its profile is over at once, with its answer.
        session = aioascend.Session(kit.slow(500), depth=2)
        await session.open()
        x = np.eye(700, dtype=np.float32)
        tasks = [asyncio.create_task(session.infer(x)) for _ in range(4)]
        await eventually(lambda: session.statistics().running == 2)
        await session.aclose(drain=False)
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, aioascend.SessionClosed)
        assert (await other.infer(ONES))[0][0] == 2


@pytest.mark.emulated(profile=Profile(compute={"slow": 60.0}))
async def test_a_draining_close_does_not_wait_for_runs_that_were_given_up() -> None:
    session = aioascend.Session(kit.named("slow"), depth=1)
    await session.open()
    task = asyncio.create_task(session.infer(np.ones((1, 2, 3, 4), np.float32)))
    await eventually(lambda: session.statistics().running == 1)
    closing = asyncio.create_task(session.aclose())
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait_for(closing, 10)
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_emulator_that_served_sessions_does_not_outlive_its_last_reference() -> None:
    with emulated() as emulator:
        with aioascend.Session(kit.add(1), devices="emulator:0") as session:
            session.infer_sync(ONES)
        gone = weakref.ref(emulator.acl)
    del emulator, session
    gc.collect()
    assert gone() is None
