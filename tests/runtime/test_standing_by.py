"""A thread that has nothing else to wait for works for the device's: no post is lost, and it never stays too long."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator
from aioascend.runtime import device_loop as module
from aioascend.runtime import signal as signal_module
from aioascend.runtime.device_loop import DeviceLoop
from aioascend.runtime.ports import LoopPort
from aioascend.runtime.signal import Signal
from tests import kit

LONG_S = 60.0


@pytest.fixture
def loop() -> Iterator[DeviceLoop]:
    loop = DeviceLoop("aioascend-test", lambda: None)
    loop.start()
    yield loop
    if not loop._closed:
        loop.stop()
    loop.join(5)


class Helper:
    """A thread that stands by again and again until `end`, or once."""

    def __init__(self, loop: DeviceLoop, seconds: float = LONG_S, idle: Callable[[], bool] = lambda: True) -> None:
        self.returned: list[bool] = []
        self.raised: list[BaseException] = []
        self._loop = loop
        self._thread = threading.Thread(target=self._run, args=(seconds, idle))
        self._thread.start()

    @property
    def ident(self) -> int:
        assert self._thread.ident is not None
        return self._thread.ident

    def _run(self, seconds: float, idle: Callable[[], bool]) -> None:
        try:
            self.returned.append(self._loop.stand_by(seconds, idle))
        except BaseException as error:
            self.raised.append(error)

    def waits(self) -> Helper:
        until(lambda: self._loop._stand_in is not None)
        return self

    def join(self) -> None:
        self._thread.join(5)
        assert not self._thread.is_alive()

    def interrupt(self) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(SystemExit))


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < limit, "it never came to hold"
        time.sleep(0.001)


def test_a_post_runs_on_the_thread_that_stands_by(loop: DeviceLoop) -> None:
    helper = Helper(loop).waits()
    assert loop.call(threading.get_ident).result(5) == helper.ident
    helper.join()
    assert helper.returned == [True]


def test_who_has_something_else_to_do_does_not_wait_and_the_thread_itself_goes_on(loop: DeviceLoop) -> None:
    helper = Helper(loop, idle=lambda: False)
    helper.join()
    assert helper.returned == [True]
    assert loop.call(threading.get_ident).result(5) == loop._thread.ident  # type: ignore[union-attr]


def test_a_wait_can_be_called_off_and_ends_by_itself(loop: DeviceLoop) -> None:
    helper = Helper(loop).waits()
    assert loop.call_off()
    helper.join()
    assert not loop.call_off()
    helper = Helper(loop, seconds=0.01)
    helper.join()
    assert helper.returned == [True]
    assert loop.call(lambda: 7).result(5) == 7


def test_who_is_roused_works_off_what_is_posted_next(loop: DeviceLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    armed: list[Any] = []
    monkeypatch.setattr(loop, "_arm", armed.append)
    helper = Helper(loop).waits()
    ran: list[int] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10.0)  # no other thread has the GIL between the two
    try:
        loop.rouse()
        loop.post(lambda _: ran.append(threading.get_ident()), None)
    finally:
        sys.setswitchinterval(interval)
    helper.join()
    assert ran == [helper.ident]
    assert not armed  # nobody was woken a second time


def test_who_is_roused_for_nothing_leaves_nothing_undone(loop: DeviceLoop) -> None:
    helper = Helper(loop).waits()
    loop.rouse()
    helper.join()
    assert helper.returned == [True]
    loop.rouse()  # nobody is there
    assert loop.call(threading.get_ident).result(5) == loop._thread.ident  # type: ignore[union-attr]
    helper = Helper(loop).waits()
    assert loop.call(threading.get_ident).result(5) == helper.ident
    helper.join()


def test_of_two_that_rouse_at_once_one_wakes_it(loop: DeviceLoop) -> None:
    helper, lock = Helper(loop).waits(), loop._lock

    class Late:
        """The lock, for which somebody else was faster."""

        def __enter__(self) -> None:
            loop._lock = lock
            loop.rouse()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    loop._lock = Late()  # type: ignore[assignment]
    loop.rouse()
    helper.join()
    assert helper.returned == [True]
    assert loop.call(lambda: 7).result(5) == 7


def test_a_forked_child_rouses_nobody(loop: DeviceLoop) -> None:
    helper = Helper(loop).waits()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_forked", lambda: aioascend.ForkedProcess("a child"))
        loop.rouse()
        assert loop._stand_in is not None
    assert loop.call_off()
    helper.join()


def test_nobody_stands_by_a_thread_that_has_ended(loop: DeviceLoop) -> None:
    loop.stop()
    helper = Helper(loop)
    helper.join()
    assert helper.returned == [False]


def test_who_stands_by_hands_over_when_the_posts_do_not_end(loop: DeviceLoop) -> None:
    ran: list[int] = []

    def post(_: Any) -> None:
        ran.append(threading.get_ident())
        if len(ran) < 100:
            loop.post(post, None)

    helper = Helper(loop).waits()
    loop.post(post, None)
    helper.join()
    until(lambda: len(ran) == 100)
    assert ran == [helper.ident] * module._ROUNDS + [loop._thread.ident] * (100 - module._ROUNDS)  # type: ignore[union-attr]


def test_a_thread_that_is_interrupted_while_it_waits_has_lost_nothing(loop: DeviceLoop) -> None:
    def interrupted() -> bool:
        loop.post(ran.append, 1)  # for which it is woken
        raise SystemExit

    ran: list[int] = []
    helper = Helper(loop, idle=interrupted)
    helper.join()
    assert [type(error) for error in helper.raised] == [SystemExit]
    until(lambda: ran == [1])
    assert loop.call(lambda: 7).result(5) == 7


@pytest.mark.logs_errors
def test_a_thread_that_is_interrupted_in_a_burst_leaves_the_rest_to_the_thread_itself() -> None:
    told: list[tuple[BaseException, Any]] = []
    loop = DeviceLoop("aioascend-test", lambda: None, lambda error, argument: told.append((error, argument)))
    loop.start()
    helper = Helper(loop).waits()

    def burst(_: Any) -> None:
        def wake() -> None:
            helper.interrupt()
            for _ in range(1000):
                pass

        port: Any = type("Port", (), {"wake": staticmethod(wake)})()
        loop.touch(port)  # woken at the end of the burst, where nothing catches

    loop.post(burst, None)
    helper.join()
    assert helper.returned == [True]
    assert [type(error) for error, _ in told] == [SystemExit]
    assert loop.call(lambda: 7).result(5) == 7
    loop.stop()


def test_no_post_is_lost_between_threads_that_post_and_one_that_stands_by(loop: DeviceLoop) -> None:
    posts, threads = 2000, 4
    ran: list[int] = []
    end = threading.Event()

    def stand_by() -> None:
        while not end.is_set():
            loop.stand_by(0.001, lambda: True)

    def post() -> None:
        for number in range(posts):
            if number % 3 == 0:
                loop.rouse()
            loop.post(ran.append, number)
            if number % 50 == 0:
                time.sleep(0.0002)

    helper = threading.Thread(target=stand_by)
    helper.start()
    callers = [threading.Thread(target=post) for _ in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    try:
        until(lambda: len(ran) == posts * threads)
    finally:
        end.set()
        helper.join(5)


async def test_a_lone_caller_is_served_by_the_report_thread_from_the_post_to_the_outcome(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOASCEND_COMPLETION", "callback")
    names: list[str] = []
    async with aioascend.Session(kit.add(1.0), devices="emulator:0") as session:
        core = session._core
        assert core is not None
        arm = core.arm

        def watched(*args: Any) -> None:
            names.append(threading.current_thread().name)
            arm(*args)

        monkeypatch.setattr(core, "arm", watched)
        for _ in range(20):
            until(lambda: core._device._stand_in is not None)
            await session.infer(np.zeros(4, np.float32))
    assert set(names) == {"aioascend-report-emulator:0"}


async def test_a_lone_caller_s_loop_is_roused_while_its_outcome_is_made(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes: list[bool] = []
    monkeypatch.setattr(signal_module, "_PROCESSORS", 2)

    def wake(self: LoopPort) -> bool:
        wakes.append(bool(self._over))
        return wake_up(self)

    wake_up = LoopPort.wake
    async with aioascend.Session(kit.add(1.0), devices="emulator:0") as session:
        await session.infer(np.zeros(4, np.float32))
        monkeypatch.setattr(LoopPort, "wake", wake)
        np.testing.assert_array_equal((await session.infer(np.zeros(4, np.float32)))[0], [1] * 4)
    assert wakes[:2] == [False, True]  # before there was anything to tell, and then


@pytest.mark.parametrize("depth", [1, 3])
async def test_nobody_is_roused_early_while_others_wait(
    depth: int, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    roused: list[int] = []
    async with aioascend.Session(kit.add(1.0), devices="emulator:0", depth=depth) as session:
        pipeline = session._usable()
        monkeypatch.setattr(Signal, "rouse", lambda self: roused.append(len(pipeline._live)))
        x = np.zeros(4, np.float32)
        for outputs in await asyncio.gather(*(session.infer(x) for _ in range(20))):
            np.testing.assert_array_equal(outputs[0], [1] * 4)
    assert len(roused) <= 1  # the last one is alone
    assert set(roused) <= {1}


async def test_an_input_that_is_refused_rouses_to_no_harm(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1.0), devices="emulator:0") as session:
        for _ in range(20):
            with pytest.raises(aioascend.InvalidInput):
                await session.infer(np.zeros(3, np.float32))
            np.testing.assert_array_equal((await session.infer(np.zeros(4, np.float32)))[0], [1] * 4)
        assert session.statistics().completed == 20
