"""A long program that is in order, from several host threads: the race detector says nothing and forgets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator

from .kit import Driver

H2D, D2H = 1, 2


@pytest.fixture
def strict() -> Iterator[Driver]:
    emulator = Emulator(Config(memory=256 << 20, strict=True))
    emulator.acl.init()
    yield Driver(emulator)
    emulator.shutdown()


def worker(npu: Driver, number: int, requests: int, errors: list[BaseException]) -> None:
    """Requests on three streams, `depth` at a time, from one host thread: in order all of them."""
    try:
        random = np.random.default_rng(number)
        npu.ok(npu.rt.set_context(npu.context))
        rt, depth = npu.rt, 3
        streams = [npu.stream() for _ in range(3)]
        h2d, compute, d2h = streams
        block = npu.device(depth * 1024)
        host, view = npu.pinned(np.zeros(depth * 512, np.uint8))
        events = [[npu.ok(npu.rt.create_event_ex_with_flag(1)) for _ in range(3)] for _ in range(depth)]
        flying: list[tuple[int, int, int]] = []

        def link(event: int, one: int, other: int) -> None:
            npu.ok(rt.record_event(event, one))
            npu.ok(rt.stream_wait_event(other, event))

        for turn in range(requests):
            if len(flying) == depth:
                place, first, value = flying.pop(0)
                way = turn % 3
                if way == 0:
                    npu.ok(rt.synchronize_event(events[place][2]))
                elif way == 1:
                    npu.ok(rt.synchronize_stream(d2h))
                else:
                    while npu.ok(rt.query_event_status(events[place][2])) != 1:
                        time.sleep(0)
                assert (view[place * 512 + 256 : place * 512 + 256 + first] == value).all()
            place, size, value = turn % depth, int(random.integers(1, 256)), int(random.integers(0, 255))
            source, given = host + place * 512, block + place * 1024
            npu.emulator.host_access(source, size, True)
            view[place * 512 : place * 512 + size] = value
            copied, computed, done = events[place]
            npu.ok(rt.memcpy_async(given, size, source, size, H2D, h2d))
            link(copied, h2d, compute)
            npu.ok(rt.memcpy_async(given + 512, size, given, size, 3, compute))
            link(computed, compute, d2h)
            npu.ok(rt.memcpy_async(source + 256, size, given + 512, size, D2H, d2h))
            npu.ok(rt.record_event(done, d2h))
            flying.append((place, size, value))
        for stream in streams:
            npu.ok(rt.synchronize_stream(stream))
    except BaseException as error:
        errors.append(error)


def test_ten_thousand_tasks_of_three_threads_are_in_order(strict: Driver) -> None:
    errors: list[BaseException] = []
    threads = [threading.Thread(target=worker, args=(strict, number, 1150, errors)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    strict.rt.synchronize_device()
    assert strict.emulator.report().violations == ()
    assert strict.emulator._process.races.records < 2000
