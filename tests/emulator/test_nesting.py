"""A destructor or signal handler may call anything at any time: nothing hangs, and what it calls is done."""

from __future__ import annotations

import gc
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from .kit import Driver


class Resources:
    """Device memory, a dataset and a stream."""

    def __init__(self, npu: Driver) -> None:
        self.rt, self.mdl, self.acl = npu.rt, npu.mdl, npu.acl
        self.stream, self.memory = npu.stream(), npu.device(64)
        self.dataset = npu.dataset((self.memory, 64))

    def give_back(self) -> None:
        self.rt.memset_async(self.memory, 64, 1, 64, self.stream)
        self.rt.synchronize_stream(self.stream)
        self.rt.destroy_stream(self.stream)
        for index in range(self.mdl.get_dataset_num_buffers(self.dataset)):
            buffer = self.mdl.get_dataset_buffer(self.dataset, index)
            self.rt.free(self.acl.get_data_buffer_addr(buffer))
            self.acl.destroy_data_buffer(buffer)
        self.mdl.destroy_dataset(self.dataset)


class Cycle(Resources):
    """Given back by a destructor, whenever garbage is collected."""

    def __init__(self, npu: Driver) -> None:
        super().__init__(npu)
        self.me = self

    def __del__(self) -> None:
        self.give_back()


@pytest.fixture
def often() -> Any:
    """Collections as often as can be."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


def test_destructors_in_cycles_give_everything_back(npu: Driver, often: Any) -> None:
    stream, event = npu.stream(), npu.ok(npu.rt.create_event_ex_with_flag(1))
    before = npu.emulator.report().leaks
    for _ in range(300):
        Cycle(npu)
        npu.ok(npu.rt.record_event(event, stream))
        npu.ok(npu.rt.synchronize_stream(stream))
    gc.collect()
    npu.ok(npu.rt.synchronize_stream(stream))
    report = npu.emulator.report()
    assert report.leaks == before
    assert report.violations == ()


def test_a_destructor_on_a_thread_of_the_emulator_is_made_up_for_by_the_next_call(npu: Driver) -> None:
    process = npu.emulator._process
    stream = npu.stream()
    before = npu.emulator.report().leaks
    resources = Resources(npu)

    def collect() -> None:
        process.nesting.on_a_thread_of_ours()
        resources.give_back()

    thread = threading.Thread(target=collect)
    thread.start()
    thread.join()
    assert npu.rt.stream_query(stream) == (0, 0)
    assert npu.emulator.report().leaks == before


def test_a_callback_of_the_program_is_not_in_the_middle_of_a_call(npu: Driver) -> None:
    stream, seen = npu.stream(), []
    npu.ok(npu.rt.subscribe_report(threading.get_ident(), stream))
    npu.ok(npu.rt.launch_callback(lambda _: seen.append(npu.rt.malloc(64, 0)), None, 0, stream))
    npu.ok(npu.rt.process_report(1000))
    npu.ok(npu.rt.free(npu.ok(seen[0])))


def test_a_signal_handler_may_call_in_the_middle_of_a_call(npu: Driver) -> None:
    stream, event = npu.stream(), npu.ok(npu.rt.create_event_ex_with_flag(1))
    source, target = npu.pinned(np.ones(4))[0], npu.device(32)
    codes = []

    def handler(*_: object) -> None:
        codes.append(npu.rt.record_event(event, stream))
        codes.append(npu.rt.synchronize_stream(stream))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end or len(codes) < 20:
            npu.ok(npu.rt.memcpy_async(target, 32, source, 32, 1, stream))
            npu.ok(npu.rt.synchronize_stream(stream))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert set(codes) == {0}
    npu.ok(npu.rt.synchronize_stream(stream))
    assert npu.rt.query_event_status(event) == (1, 0)
