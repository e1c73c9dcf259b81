"""Whether a call holds the GIL is told from outside, with real calls that do and do not."""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from aioascend.doctor import timing
from aioascend.doctor.checks import Unavailable
from aioascend.doctor.timing import held_or_released

holding = ctypes.PyDLL(None).usleep
releasing = ctypes.CDLL(None).usleep


def test_a_call_that_holds_the_gil_is_held() -> None:
    assert held_or_released(lambda: holding(150_000)).text == "held"


def test_a_call_that_releases_the_gil_is_released() -> None:
    assert held_or_released(lambda: releasing(150_000)).text == "released"


def test_of_a_thread_that_has_no_core_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was the GIL or the busy machine that stopped it cannot be known."""
    lost = 0.0

    def no_core(seconds: float) -> None:
        nonlocal lost
        time.sleep(0.12)  # the other thread comes back late ...
        lost += 0.119  # ... and the kernel says that it was for want of a core

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=time.perf_counter, sleep=no_core))
    monkeypatch.setattr(timing, "starved", lambda: lost)
    with timing.Timed() as timed:
        releasing(110_000)
    with pytest.raises(Unavailable, match="too busy to tell"):
        timed.verdict()


def test_what_the_thread_was_without_a_core_for_is_not_what_it_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = 0.0

    def sometimes_no_core(seconds: float) -> None:
        nonlocal lost
        before = time.perf_counter()
        late = 0.1 if not lost else 0.0
        time.sleep(seconds + late)
        lost += late and time.perf_counter() - before - seconds

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=time.perf_counter, sleep=sometimes_no_core))
    monkeypatch.setattr(timing, "starved", lambda: lost)
    with timing.Timed() as timed:
        releasing(400_000)
    assert timed.longest < 0.1  # and not the tenth of a second that it was away


def test_of_a_caller_that_has_no_core_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been between two lines of Python, with the GIL, when it lost its core."""
    caller = threading.get_ident()
    begun = time.perf_counter()
    monkeypatch.setattr(
        timing, "starved", lambda: time.perf_counter() - begun if threading.get_ident() == caller else 0.0
    )
    with timing.Timed() as timed:
        holding(150_000)
    with pytest.raises(Unavailable, match="too busy to tell"):
        timed.verdict()


def test_waiting_for_a_core_is_told_by_the_kernel() -> None:
    """More threads than there are cores, each with work that needs no GIL."""
    if not Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").exists():
        pytest.skip("this kernel keeps no schedstat")
    many = 3 * len(os.sched_getaffinity(0))
    waited = []

    def work() -> None:
        before, begun = timing.starved(), time.perf_counter()
        while time.perf_counter() - begun < 0.5:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 50_000)
        waited.append(timing.starved() - before)

    threads = [threading.Thread(target=work) for _ in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(waited) > 0.1


def test_what_comes_before_the_call_is_not_judged() -> None:
    assert held_or_released(lambda: releasing(150_000), lambda: holding(150_000)).text == "released"


def test_one_attempt_that_was_too_quick_does_not_end_it() -> None:
    lengths = iter([1_000, 150_000])

    assert held_or_released(lambda: holding(next(lengths, 150_000))).text == "held"


def test_a_call_that_is_always_too_quick_is_not_judged() -> None:
    with pytest.raises(Unavailable, match="too quick to tell"):
        held_or_released(lambda: None)


def test_no_thread_is_left_whatever_happens() -> None:
    before = threading.active_count()

    def fails() -> None:
        raise ValueError

    for prepare, call in ((fails, time.time), (time.time, fails)):
        with pytest.raises(ValueError, match=r"^$"):
            held_or_released(call, prepare)
    assert threading.active_count() == before
