"""Loads that share work memory may be on several streams where events put their runs in order (pyACL reference §11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aioascend.emulator import Config, Emulator

from .kit import Driver, doubler


class Bench:
    """Two loads with one work memory, and a first run that is held up."""

    def __init__(self, npu: Driver, path: Path, make: str) -> None:
        self.npu = npu
        path.write_bytes(doubler())
        work_size, _ = npu.ok(npu.mdl.query_size(str(path)))
        work = npu.device(work_size)
        load = npu.mdl.load_from_file_with_mem
        self.models = [npu.ok(load(str(path), work, work_size, 0, 0)) for _ in range(2)]
        self.dataset = npu.dataset((npu.device(24), 24))
        self.make: Callable[[int], Any] = getattr(npu.rt, make)
        self.first, self.second, self.third = (npu.stream() for _ in range(3))
        self.release = npu.hold(self.first)

    def event(self) -> int:
        event: int = self.npu.ok(self.make(1))
        return event

    def link(self, event: int, before: int, after: int) -> None:
        self.npu.ok(self.npu.rt.record_event(event, before))
        self.npu.ok(self.npu.rt.stream_wait_event(after, event))

    def run(self, which: int, stream: int) -> int:
        code: int = self.npu.mdl.execute_async(self.models[which], self.dataset, self.dataset, stream)
        return code

    def end(self) -> list[str]:
        self.release()
        self.npu.ok(self.npu.rt.synchronize_device())
        return [violation.rule for violation in self.npu.emulator.report().violations]


@pytest.fixture(params=["create_event_with_flag", "create_event_ex_with_flag"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    emulator = Emulator(Config(memory=64 << 20, strict=True))
    emulator.acl.init()
    yield Bench(Driver(emulator), tmp_path / "m.onnx", request.param)
    emulator.shutdown()


def test_an_event_puts_the_runs_in_order(bench: Bench) -> None:
    assert bench.run(0, bench.first) == 0
    bench.link(bench.event(), bench.first, bench.second)
    assert bench.run(1, bench.second) == 0
    assert bench.end() == []


def test_order_is_passed_on_from_stream_to_stream(bench: Bench) -> None:
    assert bench.run(0, bench.first) == 0
    bench.link(bench.event(), bench.first, bench.third)
    bench.link(bench.event(), bench.third, bench.second)
    assert bench.run(1, bench.second) == 0
    assert bench.end() == []


def test_an_event_before_the_run_says_nothing_about_it(bench: Bench) -> None:
    bench.link(bench.event(), bench.first, bench.second)
    assert bench.run(0, bench.first) == 0
    assert bench.run(1, bench.second) == 107005
    assert bench.end() == ["work-memory-shared"]


def test_a_record_before_the_wait_is_not_passed_on(bench: Bench) -> None:
    assert bench.run(0, bench.first) == 0
    early = bench.event()
    release = bench.npu.hold(bench.third)
    bench.npu.ok(bench.npu.rt.record_event(early, bench.third))
    bench.link(bench.event(), bench.first, bench.third)
    bench.npu.ok(bench.npu.rt.stream_wait_event(bench.second, early))
    assert bench.run(1, bench.second) == 107005
    release()
    assert bench.end() == ["work-memory-shared"]


def test_a_run_that_the_host_waits_for_is_in_no_order(bench: Bench) -> None:
    assert bench.run(0, bench.first) == 0
    assert bench.npu.mdl.execute(bench.models[1], bench.dataset, bench.dataset) == 107005
    assert bench.end() == ["work-memory-shared"]
