"""What holds for every test: the loops and completion ways it runs on, and what it must leave behind."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest
import uvloop

from aioascend import driver
from aioascend.emulator import Config, Emulator
from aioascend.runtime import process, recovery
from aioascend.scheduling.health import Health


def _debug_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 60  # slowness of the machine is not what debug mode is asked for here
    return loop


_LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "debug": _debug_loop,
}


def pytest_configure(config: pytest.Config) -> None:
    """Markers of the fixtures below."""
    config.addinivalue_line("markers", "emulated(**changes): the configuration of this test's emulator")
    config.addinivalue_line("markers", "breaks_rules: this test makes calls that hardware forbids")
    config.addinivalue_line("markers", "logs_errors: this test provokes errors that are logged")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell has what it starts in the background ignore Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else the programs that tests start would inherit it


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The full suite on asyncio; what is marked `loops` on every loop."""
    return _LOOPS if item.get_closest_marker("loops") else {"asyncio": _LOOPS["asyncio"]}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is marked `loops` runs on both completion ways."""
    if metafunc.definition.get_closest_marker("loops"):
        metafunc.fixturenames.append("completion")
        metafunc.parametrize("completion", ["callback", "event"], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests first."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture
def completion(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The completion way of this test."""
    way: str = getattr(request, "param", "callback")
    monkeypatch.setenv("AIOASCEND_COMPLETION", way)
    return way


@pytest.fixture
def emulator(request: pytest.FixtureRequest) -> Iterator[Emulator]:
    """An emulator of two devices for this test alone, which refuses and notes whatever hardware forbids.

    `@pytest.mark.emulated(memory=...)` changes its configuration.
    """
    marker = request.node.get_closest_marker("emulated")
    config = replace(Config(devices=2, strict=True), **(marker.kwargs if marker else {}))
    emulator = Emulator(config)
    old = driver.install(driver.Backend("emulator", emulator.acl, emulator))
    try:
        yield emulator
        assert _gone(lambda: emulator.threads), "the emulator's threads outlive its last session"
        if not request.node.get_closest_marker("breaks_rules"):
            assert [str(violation) for violation in emulator.report().violations] == []
    finally:
        driver.restore("emulator", old)
        emulator.shutdown()


@pytest.fixture
def probed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is lost is probed after a moment, for tests of what comes after the probe."""
    monkeypatch.setattr(recovery, "Health", functools.partial(Health, first=0.05))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, probed_soon: None) -> None:
    """What hangs is not given time to end when its context is given back, for tests in which all else takes none."""
    monkeypatch.setattr(recovery, "_TEARDOWN_S", 0.3)


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """At the end of every test: no device open, no thread of ours alive, nothing logged as an error.

    asyncio reports exceptions that nobody retrieved, and callbacks that raised, through its logger; unraisable ones
    are warnings, which are errors here.
    """
    # What is there now stays, imports above all: the collection after the test need not walk through it.
    gc.collect()
    gc.freeze()
    complaints = _Complaints()
    before = set(threading.enumerate())
    logging.getLogger().addHandler(complaints)
    try:
        yield
        gc.collect()
        assert _gone(process.open_devices), "a device is still open"
        assert _gone(lambda: _our_threads(before)), "threads of ours are still alive"
        if not request.node.get_closest_marker("logs_errors"):
            assert [record.getMessage() for record in complaints.records] == []
    finally:
        logging.getLogger().removeHandler(complaints)


def _our_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    """Those that have come during the test: an earlier test's fault is not this one's."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("aioascend") and thread not in before]


def _gone(what: Callable[[], object], seconds: float = 3.0) -> bool:
    limit = time.monotonic() + seconds
    while what():
        if time.monotonic() > limit:
            return False
        time.sleep(0.002)
    return True
