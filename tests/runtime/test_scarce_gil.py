"""Where a thread that computes keeps the GIL from others, those who will need it ask for it ahead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from aioascend.runtime import ports
from aioascend.runtime.device_loop import DeviceLoop
from aioascend.runtime.ports import LoopPort
from tests.runtime.test_standing_by import Helper, loop

__all__ = ["loop"]

MS = 0.001


class Loop:
    """A loop whose callbacks run when a test says so, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        self.soon.append(function)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, function))

    def run(self, late: float) -> None:
        """Let everything run that waits, so many seconds after it should have."""
        soon, self.soon = self.soon, []
        timers, self.timers = self.timers, []
        self.now = max([self.now, *(due for due, _ in timers)]) + late
        for function in (*soon, *(function for _, function in timers)):
            function()


class Future:
    """What a port resolves."""

    def __init__(self) -> None:
        self.result = False

    def done(self) -> bool:
        return self.result

    def set_result(self, _: None) -> None:
        self.result = True


class Scene:
    """A port on such a loop."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.port = LoopPort(cast("asyncio.AbstractEventLoop", self.loop))

    def put(self) -> Future:
        future: Any = Future()
        self.port.put(future)
        return cast("Future", future)

    def told(self, late: float) -> bool:
        """A result that reaches the loop so late; whether it then asks ahead."""
        future = self.put()
        self.port.wake()
        self.loop.run(late)
        assert future.result
        return bool(self.loop.timers)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene()
    monkeypatch.setattr(ports.time, "monotonic", scene.loop.monotonic)
    return scene


def test_a_loop_that_is_told_in_time_asks_for_nothing(scene: Scene) -> None:
    for late in (0.0, 0.1 * MS, 1.5 * MS):
        assert not scene.told(late)
    assert not scene.port.wake()


def test_a_loop_whose_turn_comes_late_has_the_next_result_in_the_turn_it_has_asked_for(scene: Scene) -> None:
    assert scene.told(5 * MS)
    future = scene.put()
    scene.loop.run(late=4 * MS)  # nobody has woken it
    assert future.result
    assert scene.loop.timers  # it goes on, as this turn came late too


def test_whoever_wakes_such_a_loop_is_told_that_turns_are_scarce(scene: Scene) -> None:
    scene.told(5 * MS)
    assert scene.port.wake()
    assert scene.port.wake()  # also where a wake-up is on its way already


def test_it_stops_asking_when_a_turn_comes_in_time(scene: Scene) -> None:
    scene.told(5 * MS)
    scene.loop.run(late=0.5 * MS)
    assert not scene.loop.timers
    assert not scene.port.wake()


def test_it_stops_asking_when_nothing_comes_any_more(scene: Scene) -> None:
    scene.told(5 * MS)
    turns = 0
    while scene.loop.timers:
        scene.loop.run(late=5 * MS)
        turns += 1
    assert 1 < turns < 20


def test_it_asks_once_however_many_results_come_late(scene: Scene) -> None:
    for _ in range(3):
        future = scene.put()
        scene.port.wake()
        timers, scene.loop.timers = scene.loop.timers, []
        scene.loop.run(late=5 * MS)
        scene.loop.timers += timers
        assert future.result
    assert len(scene.loop.timers) == 1


class ScarcePort:
    """A port whose loop gets the GIL late."""

    def put(self, waiter: object) -> None:
        raise AssertionError

    def wake(self) -> bool:
        return True


def test_a_thread_that_stands_by_looks_up_often_while_turns_are_scarce_and_then_no_more(loop: DeviceLoop) -> None:
    helper = Helper(loop).waits()
    loop.post(lambda _: loop.touch(ScarcePort()), None)
    helper.join()
    short = 0
    while True:
        helper = Helper(loop)
        helper._thread.join(1.0)
        if helper._thread.is_alive():
            break
        short += 1
        assert short < 20
    assert short > 1
    assert loop.call(threading.get_ident).result(5) == helper.ident  # this one waits for as long as it was told
    helper.join()
