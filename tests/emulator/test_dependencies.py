"""Random programs over several streams whose dependencies are events: the outcome is that of doing it in order."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator, Profile

from .kit import Driver, doubler

CELLS, STREAMS, STEPS, WIDTH = 6, 4, 120, 64


@dataclass
class Cell:
    """Device memory, what it should hold, and the events of its last uses."""

    address: int
    dataset: int
    value: np.ndarray
    written: int | None = None
    read: list[int] = field(default_factory=list)


class Program:
    """Submits random copies and runs; before each it waits for the last uses of what it touches."""

    def __init__(self, npu: Driver, seed: int, flavour: str) -> None:
        self.npu = npu
        self.flavour = flavour
        self.random = np.random.default_rng(seed)
        self.models = [npu.load(doubler((WIDTH,))) for _ in range(STREAMS)]
        self.streams = [npu.stream() for _ in range(STREAMS)]
        self.cells = []
        for number in range(CELLS):
            value = np.full(WIDTH, number + 1, np.float32)
            address = npu.upload(value)
            self.cells.append(Cell(address, npu.dataset((address, value.nbytes)), value))

    def event(self) -> int:
        event: int = self.npu.ok(getattr(self.npu.rt, f"create_event{self.flavour}")(*([1] if self.flavour else [])))
        return event

    def step(self) -> None:
        npu, rt = self.npu, self.npu.rt
        lane = int(self.random.integers(STREAMS))
        stream = self.streams[lane]
        source, target = (self.cells[i] for i in self.random.choice(CELLS, 2, replace=False))
        for event in (source.written, target.written, *target.read):
            if event is not None:
                npu.ok(rt.stream_wait_event(stream, event))
        if self.random.random() < 0.5:
            npu.ok(rt.memcpy_async(target.address, WIDTH * 4, source.address, WIDTH * 4, 3, stream))
            target.value = source.value.copy()
        else:
            npu.ok(npu.mdl.execute_async(self.models[lane], source.dataset, target.dataset, stream))
            target.value = source.value * 2
        done = self.event()
        npu.ok(rt.record_event(done, stream))
        source.read.append(done)
        target.written, target.read = done, []

    def check(self) -> None:
        for stream in self.streams:
            self.npu.ok(self.npu.rt.synchronize_stream_with_timeout(stream, 20000))
        for cell in self.cells:
            assert np.array_equal(self.npu.download(cell.address, cell.value), cell.value)


@pytest.mark.parametrize("flavour", ["", "_ex_with_flag"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"inline_copy": 0},
        {"inline_copy": 0, "concurrent_executes": 3},
        {"profile": Profile(copy_latency=1e-4, compute_default=2e-4, switch=1e-4), "concurrent_executes": 2},
    ],
)
def test_a_random_program_comes_out_as_if_done_in_order(settings: dict[str, object], flavour: str) -> None:
    emulator = Emulator(Config(memory=64 << 20, **settings))  # type: ignore[arg-type]
    emulator.acl.init()
    npu = Driver(emulator)
    for seed in range(3):
        program = Program(npu, seed, flavour)
        for _ in range(STEPS):
            program.step()
        program.check()
    emulator.shutdown()


def test_random_programs_of_several_threads_do_not_disturb_each_other() -> None:
    emulator = Emulator(Config(memory=64 << 20, concurrent_executes=2, inline_copy=0))
    emulator.acl.init()
    npu = Driver(emulator)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            npu.rt.set_context(npu.context)
            program = Program(npu, seed, "_ex_with_flag")
            for _ in range(STEPS):
                program.step()
            program.check()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    emulator.shutdown()
