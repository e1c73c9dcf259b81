"""Calls that fail at any point of opening, running and closing: nothing leaks, nothing hangs, no wrong bytes."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from tests import kit
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("emulator")

MAKERS = {
    "rt.create_stream": "rt.destroy_stream",
    "rt.create_event_ex_with_flag": "rt.destroy_event",
    "rt.create_event": "rt.destroy_event",
    "rt.create_context": "rt.destroy_context",
    "rt.set_device": "rt.reset_device",
    "rt.malloc": "rt.free",
    "rt.malloc_host": "rt.free_host",
    "rt.subscribe_report": "rt.unsubscribe_report",
    "mdl.load_from_mem": "mdl.unload",
    "mdl.create_desc": "mdl.destroy_desc",
    "mdl.create_dataset": "mdl.destroy_dataset",
    "create_data_buffer": "destroy_data_buffer",
}
OPENING = [*MAKERS, "rt.get_run_mode", "rt.set_context", "mdl.get_desc", "mdl.get_input_dims", "mdl.add_dataset_buffer"]
RUNNING = [
    "rt.memcpy_async",
    "rt.record_event",
    "rt.stream_wait_event",
    "mdl.execute_async",
    "rt.launch_callback",
    "rt.stream_query",
    "rt.create_event",
]
BARE = {"mdl.create_desc", "mdl.create_dataset", "create_data_buffer"}
CODE = 500002


class Books:
    """Counts what an emulator's acl makes and destroys, and lets the k-th call of one function fail."""

    def __init__(self, emulator: Emulator) -> None:
        self.acl = emulator.acl
        self.made: Counter[str] = Counter()
        self.destroyed: Counter[str] = Counter()
        self.fail: tuple[str, int] | None = None
        self.calls = 0
        for maker, destroyer in MAKERS.items():
            self._wrap(maker, self.made, maker)
            self._wrap(destroyer, self.destroyed, destroyer)
        for name in {*OPENING, *RUNNING} - set(MAKERS):
            self._wrap(name, Counter(), name)

    def _wrap(self, name: str, book: Counter[str], entry: str) -> None:
        module = self.acl
        *path, last = name.split(".")
        for part in path:
            module = getattr(module, part)
        call = getattr(module, last, None)
        if call is None or hasattr(call, "counted"):
            return

        def counted(*args: Any) -> Any:
            if self.fail is not None and self.fail[0] == name:
                self.calls += 1
                if self.calls == self.fail[1]:
                    return _failure(name, args)
            result = call(*args)
            ret = result[-1] if isinstance(result, tuple) else (0 if name in BARE else result)
            if ret == 0:
                book[entry] += 1
            return result

        counted.counted = True  # type: ignore[attr-defined]
        setattr(module, last, counted)

    def assert_balanced(self) -> None:
        made: Counter[str] = Counter()
        for maker, destroyer in MAKERS.items():
            made[destroyer] += self.made[maker]
        assert made == self.destroyed


def _failure(name: str, args: tuple[Any, ...]) -> Any:
    if name in BARE:
        return 0
    if name == "mdl.add_dataset_buffer":
        return args[0], CODE
    if name == "mdl.get_input_dims":
        return {}, CODE
    pairs = ("create_", "malloc", "load_", "stream_query", "get_run_mode")
    return (0, CODE) if any(part in name for part in pairs) else CODE


@pytest.fixture
def books(emulator: Emulator) -> Books:
    return Books(emulator)


@pytest.mark.parametrize("way", ["callback", "event"])
@pytest.mark.parametrize("function", OPENING)
async def test_an_open_whose_kth_call_fails_gives_everything_back(
    books: Books, function: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    for k in range(1, 40):
        books.fail, books.calls = (function, k), 0
        session = aioascend.Session(kit.add(1), depth=2)
        with anyio.fail_after(20):
            (outcome,) = await asyncio.gather(session.open(), return_exceptions=True)
        if outcome is not None:
            assert isinstance(outcome, aioascend.AioascendError)
            assert str(CODE) in str(outcome) or "200000" in str(outcome)  # the first cause, not the clean-up after it
        await session.aclose()
        books.assert_balanced()
        if books.calls < k:
            break
    else:
        raise AssertionError("more calls than expected: the loop has not tried them all")
    books.fail = None
    async with aioascend.Session(kit.add(1)) as session:
        assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1


@pytest.mark.parametrize("ex_events", [True, False])
@pytest.mark.parametrize("function", RUNNING)
async def test_a_run_whose_kth_call_fails_fails_alone_and_the_next_are_right(
    emulator: Emulator, books: Books, function: str, ex_events: bool
) -> None:
    if not ex_events:
        del emulator.acl.rt.create_event_ex_with_flag
    async with aioascend.Session(kit.add(1), depth=2) as session:
        for k in range(1, 8):
            books.fail, books.calls = (function, k), 0
            with anyio.fail_after(20):
                results = await asyncio.gather(
                    *(session.infer(np.full(4, i, np.float32)) for i in range(6)), return_exceptions=True
                )
            books.fail = None
            for i, result in enumerate(results):
                if isinstance(result, BaseException):
                    assert isinstance(result, aioascend.AclError)
                    assert result.code == CODE
                else:
                    assert result[0].tolist() == [i + 1] * 4
            assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1
    books.assert_balanced()


async def test_an_event_wait_that_fails_never_hands_out_earlier_bytes(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", "event")
    wait = emulator.acl.rt.synchronize_event_with_timeout
    failing = False

    def wait_or_fail(event: int, timeout: int) -> int:
        return 507000 if failing else wait(event, timeout)

    emulator.acl.rt.synchronize_event_with_timeout = wait_or_fail
    async with aioascend.Session(kit.slow(10), depth=1) as session:
        eye = np.eye(700, dtype=np.float32)
        np.testing.assert_array_equal((await session.infer(2 * eye))[0], 2 * eye)
        failing = True
        with pytest.raises(aioascend.AclError) as caught:
            await session.infer(3 * eye)
        assert caught.value.code == 507000
        failing = False
        np.testing.assert_array_equal((await session.infer(4 * eye))[0], 4 * eye)


@pytest.mark.parametrize("failures", [1, 3, 8])
async def test_reports_that_fail_for_a_while_leave_nobody_waiting_for_ever(emulator: Emulator, failures: int) -> None:
    process = emulator.acl.rt.process_report
    left = 0

    def process_or_fail(timeout: int) -> int:
        nonlocal left
        if left:
            left -= 1
            return 507000
        return process(timeout)

    emulator.acl.rt.process_report = process_or_fail
    async with aioascend.Session(kit.add(1)) as session:
        left = failures
        with anyio.fail_after(30):
            results = await asyncio.gather(
                *(session.infer(np.full(4, i, np.float32)) for i in range(20)), return_exceptions=True
            )
            for i, result in enumerate(results):
                if isinstance(result, BaseException):
                    assert isinstance(result, aioascend.AclError)
                else:
                    assert result[0].tolist() == [i + 1] * 4
            await eventually(lambda: not left, seconds=20)
            assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1


async def test_callers_that_come_while_a_session_closes_are_told_so_and_never_left(emulator: Emulator) -> None:
    x = np.zeros(4, np.float32)

    class Slow:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            started.release()
            go.wait(10)
            return x

    for _ in range(5):
        started, go = threading.Semaphore(0), threading.Event()
        session = aioascend.Session(kit.add(1))
        await session.open()
        late = [asyncio.ensure_future(asyncio.to_thread(session.infer_sync, Slow())) for _ in range(3)]
        for _ in late:
            await asyncio.to_thread(started.acquire)
        pinned = [session.request() for _ in range(3)]
        await session.aclose()
        go.set()
        with anyio.fail_after(10):
            results = await asyncio.gather(*late, *(request.__aenter__() for request in pinned), return_exceptions=True)
        assert [type(result) for result in results] == [aioascend.SessionClosed] * 6


def test_threads_that_hammer_a_closing_session_all_come_back() -> None:
    x = np.zeros(4, np.float32)
    for _ in range(4):
        session = aioascend.Session(kit.add(1))
        session.open_sync()
        ends: list[type[BaseException]] = []

        def hammer(session: aioascend.Session = session, ends: list[type[BaseException]] = ends) -> None:
            try:
                while True:
                    session.infer_sync(x)
            except aioascend.AioascendError as error:
                ends.append(type(error))

        threads = [threading.Thread(target=hammer) for _ in range(4)]
        for thread in threads:
            thread.start()
        session.close_sync(drain=False)
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert ends == [aioascend.SessionClosed] * 4


async def test_a_pinned_buffer_made_while_the_session_closes_goes_back(books: Books) -> None:
    async with aioascend.Session(kit.add(1)) as keeping:  # keeps the device open

        def used() -> tuple[int, int]:
            memory = keeping.statistics().memory
            assert memory is not None
            return memory.device.used, memory.pinned.used

        before = used()
        for delay in (0, 0, 0.0002, 0.0005, 0.001):
            session = aioascend.Session(kit.add(1))
            await session.open()
            asking = [asyncio.ensure_future(session.request().__aenter__()) for _ in range(2)]
            await asyncio.sleep(delay)
            await session.aclose()
            results = await asyncio.gather(*asking, return_exceptions=True)
            assert {type(result) for result in results} <= {aioascend.PinnedRequest, aioascend.SessionClosed}
            del results, asking
            gc.collect()
            await eventually(lambda: used() == before)
    books.assert_balanced()


@pytest.mark.emulated(profile=Profile(parse=0.2))
async def test_cancelling_one_of_two_opens_leaves_the_other_an_open_session() -> None:
    session = aioascend.Session(kit.add(1), warmup=1)
    first, second = asyncio.create_task(session.open()), asyncio.create_task(session.open())
    await asyncio.sleep(0.001)
    first.cancel()
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1] is None
    assert session.statistics().completed == 1  # the warm-up is part of the open
    assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1
    await session.aclose()


async def test_an_open_that_is_overtaken_by_a_close_says_so() -> None:
    session = aioascend.Session(kit.add(1))
    opening = asyncio.create_task(session.open())
    await asyncio.sleep(0)
    await session.aclose()
    with pytest.raises(aioascend.SessionClosed, match="was closed while it was being opened"):
        await opening


def test_ctrl_c_while_a_thread_is_started_leaves_no_device_open(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "aioascend-open":
            raise KeyboardInterrupt

    session = aioascend.Session(kit.add(1))
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.open_sync()
    monkeypatch.undo()
    session.close_sync()


async def test_sync_callers_of_a_session_closed_without_drain_learn_why() -> None:
    session = aioascend.Session(kit.slow(20), depth=1)
    await session.open()
    x = np.eye(700, dtype=np.float32)
    callers = [asyncio.ensure_future(asyncio.to_thread(session.infer_sync, x)) for _ in range(6)]
    await eventually(lambda: session.statistics().waiting > 0)
    await session.aclose(drain=False)
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(result) for result in results} <= {aioascend.Outputs, aioascend.SessionClosed}
    assert aioascend.SessionClosed in {type(result) for result in results}


@pytest.mark.parametrize("copied", [lambda x: __import__("copy").copy(x), lambda x: __import__("pickle").dumps(x)])
async def test_what_stands_for_something_on_a_device_cannot_be_copied(copied: Callable[[Any], Any]) -> None:
    async with aioascend.Session(kit.add(1)) as session, aioascend.Device("emulator:0") as device:
        ticket = await session.submit(np.zeros(4, np.float32))
        for thing in (session, ticket, device, await device.create_stream(), await device.malloc(8)):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                copied(thing)
        assert (await ticket)[0][0] == 1


def wrap(emulator: Emulator, name: str, around: Callable[[Callable[..., Any], tuple[Any, ...]], Any]) -> None:
    """Let calls of ``acl.rt.<name>`` (or ``acl.mdl.<name>``) go through `around`."""
    module = emulator.acl.mdl if hasattr(emulator.acl.mdl, name) else emulator.acl.rt
    call = getattr(module, name)
    setattr(module, name, lambda *args: around(call, args))


async def test_a_failed_launch_beside_a_failed_run_never_hands_out_earlier_bytes(emulator: Emulator) -> None:
    """Waiting for the streams after a failed launch takes the status of the other's run: it must get there."""
    counting, count = False, 0

    def record(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        nonlocal count
        count += counting
        return 507000 if counting and count in (3, 4) else call(*args)

    wrap(emulator, "record_event", record)
    for _ in range(10):
        async with aioascend.Session(kit.out_of_bounds()) as session:
            for index in (0, 1, 2, 3):
                await session.infer(np.array([index]))
            counting, count = True, 0
            failed, other = await asyncio.gather(
                session.infer(np.array([99])), session.infer(np.array([1])), return_exceptions=True
            )
            counting = False
            assert isinstance(failed, aioascend.ExecutionFailed)
            assert isinstance(other, aioascend.AclError)
            assert (await session.infer(np.array([2])))[0].tolist() == [12]


@pytest.mark.parametrize("nth", range(1, 7))
async def test_a_failed_wait_beside_a_failed_copy_never_hands_out_earlier_bytes(
    emulator: Emulator, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", "event")
    fail_next = False

    def wait(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        nonlocal fail_next
        if fail_next:
            fail_next = False
            return 507000
        return call(*args)

    wrap(emulator, "synchronize_event_with_timeout", wait)
    async with aioascend.Session(kit.add(1)) as session:
        for value in range(4):
            await session.infer(np.full(4, value + 50, np.float32))
        fail_next = True
        emulator.faults.fail_task("copy", 507013, nth=nth)
        results = await asyncio.gather(
            *(session.infer(np.full(4, i, np.float32)) for i in range(3)), return_exceptions=True
        )
        for i, result in enumerate(results):
            if not isinstance(result, BaseException):
                assert result[0].tolist() == [i + 1] * 4
        assert any(isinstance(result, aioascend.AclError) for result in results)
        assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1


@pytest.mark.parametrize("way", ["callback", "event"])
@pytest.mark.parametrize(
    "function",
    ["memcpy_async", "record_event", "stream_wait_event", "execute_async", "launch_callback", "stream_query",
     "synchronize_event_with_timeout", "process_report", "malloc_host"],
)  # fmt: skip
async def test_a_foreign_exception_out_of_a_call_becomes_an_error_of_ours_and_hangs_nobody(
    emulator: Emulator, function: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    monkeypatch.setenv("AIOASCEND_DRIVER", "pyacl")  # C functions raise nothing
    raising = 0

    def call_or_raise(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        nonlocal raising
        raising -= 1
        if raising == 0:
            raise SystemError("returned a result with an exception set")
        return call(*args)

    wrap(emulator, function, call_or_raise)

    async def pinned(session: aioascend.Session) -> aioascend.Outputs:
        async with session.request() as request:
            request.inputs["x"][:] = 3
            return await request.run()

    async with aioascend.Session(kit.add(1)) as session:
        raising = 2
        with anyio.fail_after(30):
            results = await asyncio.gather(
                *(session.infer(np.full(4, i, np.float32)) for i in range(6)),
                *(pinned(session) for _ in range(3)),
                return_exceptions=True,
            )
            for expected, result in zip((*range(1, 7), 4, 4, 4), results, strict=True):
                if isinstance(result, BaseException):
                    assert isinstance(result, aioascend.AioascendError)
                else:
                    assert result[0].tolist() == [expected] * 4
            assert (await session.infer(np.zeros(4, np.float32)))[0][0] == 1


async def test_those_who_wait_for_pinned_memory_are_served_or_told_when_it_runs_out(emulator: Emulator) -> None:
    failures = 0

    def malloc_host(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        nonlocal failures
        failures -= 1
        return (0, 207001) if failures >= 0 else call(*args)

    wrap(emulator, "malloc_host", malloc_host)

    async def one(session: aioascend.Session) -> float:
        async with session.request() as request:
            request.inputs["x"][:] = 3
            return float((await request.run())[0][0])

    async with aioascend.Session(kit.add(1), depth=3) as session:
        failures = 12  # each is tried twice, with what its size class rounds up and without
        with anyio.fail_after(20):
            results = await asyncio.gather(*(one(session) for _ in range(6)), return_exceptions=True)
            assert [type(result) for result in results].count(aioascend.OutOfMemory) == 3
            assert results.count(4.0) == 3
            assert await one(session) == 4


async def test_any_code_of_a_failed_run_is_told_to_its_own_request(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        for nth in (1, 2, 3, 5):
            emulator.faults.fail_task("execute", 507015, nth=nth)
            results = await asyncio.gather(
                *(session.infer(np.full(4, i, np.float32)) for i in range(8)), return_exceptions=True
            )
            for i, result in enumerate(results):
                if not isinstance(result, BaseException):
                    assert result[0].tolist() == [i + 1] * 4
            # The fault was injected once, so that a repeated run may even succeed; neighbours never fail.
            assert sum(isinstance(result, BaseException) for result in results) <= 1
