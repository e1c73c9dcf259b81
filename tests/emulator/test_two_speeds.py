"""What nobody watches takes a shorter way through the emulator: programs must come out the same on both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioascend.emulator import Config, Emulator
from tests.emulator import kit

PLACES, STREAMS, EVENTS = 4, 3, 3
SIZE = 6
# Nobody watches; somebody counts the uses; somebody looks for races; and the engine runs all by itself.
CONFIGS = {
    "plain": Config(),
    "strict": Config(strict=True),
    "races": Config(races=True, strict=True),
    "no copy inline": Config(inline_copy=0),
}

place, stream = st.integers(0, PLACES - 1), st.integers(0, STREAMS - 1)
steps = st.one_of(
    st.tuples(st.just("copy"), stream, place, place),
    st.tuples(st.just("run"), stream, place, place),
    st.tuples(st.just("fill"), stream, place, st.integers(0, 3)),
    st.tuples(st.just("look"), stream, st.just(0), st.just(0)),
)


class Machine:
    """One emulator with places in memory, streams, and events that put the steps of all streams in one order."""

    def __init__(self, config: Config) -> None:
        self.emulator = Emulator(config)
        self.emulator.acl.init()
        self.npu = npu = kit.Driver(self.emulator)
        self.places = [npu.upload(np.full((2, 3), i + 1, np.float32)) for i in range(PLACES)]
        self.datasets = [npu.dataset((address, SIZE * 4)) for address in self.places]
        self.streams = [npu.stream() for _ in range(STREAMS)]
        self.events = [npu.ok(npu.rt.create_event_ex_with_flag(1)) for _ in range(EVENTS)]
        self.models = [npu.load(kit.doubler()) for _ in range(STREAMS)]  # one id serves one stream

    def run(self, program: list[tuple[str, int, int, int]]) -> list[Any]:
        """The steps, each after the one before; the content of all places afterwards, and what was looked at."""
        npu, rt, ok = self.npu, self.npu.rt, self.npu.ok
        seen: list[Any] = []
        before = None
        for number, (kind, index, to, other) in enumerate(program):
            on = self.streams[index]
            if before is not None and before != on:
                event = self.events[number % EVENTS]
                ok(rt.record_event(event, before))
                ok(rt.stream_wait_event(on, event))
            before = on
            if kind == "copy" and to != other:
                ok(rt.memcpy_async(self.places[to], SIZE * 4, self.places[other], SIZE * 4, 3, on))
            elif kind == "run" and to != other:
                ok(npu.mdl.execute_async(self.models[index], self.datasets[other], self.datasets[to], on))
            elif kind == "fill":
                ok(rt.memset_async(self.places[to], SIZE * 4, other, SIZE * 4, on))
            elif kind == "look":
                ok(rt.synchronize_stream(on))
                seen.append([ok(rt.stream_query(on)), self.content()])
        if before is not None:
            ok(rt.synchronize_stream(before))
        seen.append([ok(rt.query_event_status(event)) for event in self.events])
        return [*seen, self.content()]

    def content(self) -> list[list[float]]:
        like = np.zeros(SIZE, np.float32)
        return [self.npu.download(address, like).tolist() for address in self.places]

    def end(self) -> list[str]:
        self.emulator.shutdown()
        return [str(violation) for violation in self.emulator.report().violations]


def expected(program: list[tuple[str, int, int, int]]) -> list[list[float]]:
    """What numpy says."""
    places = [np.full(SIZE, i + 1, np.float32) for i in range(PLACES)]
    for kind, _, to, other in program:
        if kind == "copy" and to != other:
            places[to] = places[other].copy()
        elif kind == "run" and to != other:
            places[to] = places[other] + places[other]
        elif kind == "fill":
            places[to] = np.full(SIZE * 4, other, np.uint8).view(np.float32)
    return [one.tolist() for one in places]


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=25))
def test_a_program_comes_out_the_same_whoever_watches(program: list[tuple[str, int, int, int]]) -> None:
    outcomes = {}
    for name, config in CONFIGS.items():
        machine = Machine(config)
        try:
            outcomes[name] = machine.run(program)
        finally:
            complaints = machine.end()
        assert complaints == []
        assert outcomes[name][-1] == expected(program)
    assert all(outcome == outcomes["plain"] for outcome in outcomes.values())


@pytest.mark.parametrize("name", CONFIGS)
def test_a_dataset_that_has_become_another_is_run_as_what_it_is(name: str) -> None:
    """What was prepared for the last run with a dataset is not used for what it has become since."""
    machine = Machine(CONFIGS[name])
    npu, acl = machine.npu, machine.npu.acl
    on = machine.streams[0]
    buffer = acl.mdl.get_dataset_buffer(machine.datasets[0], 0)
    for source in (0, 1, 0):
        npu.ok(acl.update_data_buffer(buffer, machine.places[source], SIZE * 4))
        npu.ok(npu.mdl.execute_async(machine.models[0], machine.datasets[0], machine.datasets[3], on))
        npu.ok(npu.rt.synchronize_stream(on))
        assert machine.content()[3] == [2.0 * (source + 1)] * SIZE
    assert machine.end() == []


@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_on_memory_that_was_freed_since_the_last_one_is_refused(name: str) -> None:
    machine = Machine(CONFIGS[name])
    npu, on = machine.npu, machine.streams[0]
    for _ in range(2):
        npu.ok(npu.mdl.execute_async(machine.models[0], machine.datasets[0], machine.datasets[3], on))
        npu.ok(npu.rt.synchronize_stream(on))
    npu.ok(npu.rt.free(machine.places[0]))
    assert npu.mdl.execute_async(machine.models[0], machine.datasets[0], machine.datasets[3], on) != 0
    machine.emulator.shutdown()
