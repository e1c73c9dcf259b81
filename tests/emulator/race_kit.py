"""Programs as lists of steps: what the race detector says of them, and what their whole graph of order says."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from aioascend.emulator.contexts import ThreadState
from aioascend.emulator.device_model import DeviceModel, Work
from aioascend.emulator.findings import Findings
from aioascend.emulator.memory import Block, Blocks
from aioascend.emulator.nesting import Nesting
from aioascend.emulator.races import Races
from aioascend.emulator.streams import Event, Flavour, Marker, Stream
from aioascend.emulator.tasks import Callback, LegacyWait, Record, Reset, Wait

BYTES = 64
BASE = 1 << 40

Access = tuple[int, int, int, bool]
"""Block, from, to, whether it writes."""


@dataclass(frozen=True)
class Do:
    """One step of the host: it puts something on a stream, learns something, or touches memory itself."""

    what: str
    stream: int = 0
    event: int = 0
    accesses: tuple[Access, ...] = ()


class Quiet(Work):
    """Work that is queued and never done."""

    __slots__ = ()


class _Host:
    def __init__(self) -> None:
        self.pinned = Blocks()
        self.local = ThreadState()
        self.nesting = Nesting(lambda: None, lambda saved: None)


class Detector:
    """The detector over streams that never move: what is done is what the program says that it has learned."""

    def __init__(self, flavours: Sequence[Flavour] = ()) -> None:
        self.findings = Findings(strict=False, trace=False)
        self.races = Races(self.findings, _Host())
        self.model = DeviceModel(clock=lambda: 0.0)
        self.model.watch = self.races
        self.streams: dict[int, Stream] = {}
        self.events = [Event(n + 1, None, flavour) for n, flavour in enumerate(flavours)]
        self.blocks: dict[int, Block] = {}
        self.callbacks: dict[int, list[Callback]] = {}

    def stream(self, number: int) -> Stream:
        return self.streams.setdefault(number, Stream(number + 1))

    def block(self, number: int) -> Block:
        size = 1 << 20
        return self.blocks.setdefault(number, Block(BASE + number * size, size, size, 0, 0))

    def step(self, do: Do, number: int) -> None:
        stream = self.stream(do.stream)
        event = self.events[do.event] if self.events else None
        if do.what == "use":
            work = Quiet()
            work.site = str(number)  # in the place of a line of a program
            work.accesses = tuple(
                (self.block(block), BASE + block * (1 << 20) + start, BASE + block * (1 << 20) + end, write)
                for block, start, end, write in do.accesses
            )
            self.model.submit(stream, work)
        elif do.what == "record":
            event.marker = Marker()
            self.model.submit(stream, Record(event, event.marker))
        elif do.what == "wait":
            if event.flavour is Flavour.LEGACY:
                self.model.submit(stream, LegacyWait(event))
            elif event.marker is not None:
                self.model.submit(stream, Wait(event, event.marker))
            else:
                self.races.in_vain(stream, event)
        elif do.what == "reset":
            self.model.submit(stream, Reset(event))
        elif do.what == "callback":
            callback = Callback(print, None, False)
            self.callbacks.setdefault(do.stream, []).append(callback)
            self.model.submit(stream, callback)
        elif do.what == "called":
            if self.callbacks.get(do.stream):
                self.races.learn(self.callbacks[do.stream].pop(0).step)
        elif do.what == "synchronize":
            self.races.learn(self.races.here(stream))
        elif do.what == "ask":
            if event.marker is not None:
                self.races.learn(event.marker.mark)
        else:
            assert do.what == "host"
            for block, start, end, write in do.accesses:
                self.races.host(self.block(block), BASE + block * (1 << 20) + start, end - start, write, "")

    def play(self, program: Sequence[Do]) -> Detector:
        for number, do in enumerate(program):
            self.step(do, number)
        self.races.tell()
        return self

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """The pairs of steps, by number, that were said to race; the host has no number."""
        return {(against, where) for _, where, against in self.findings._violations}


class WaitsForEver(Exception):
    """A wait for a legacy event that no record before it lets pass."""


class Graph:
    """Every step with the set of all that comes before it, as bits of an int: the host's part of step n is bit 2n,
    what it puts on a stream is bit 2n + 1.
    """

    def __init__(self, program: Sequence[Do], flavours: Sequence[Flavour]) -> None:
        self.before: dict[int, int] = {}
        self.accesses: list[tuple[int, Access]] = []
        last: dict[int, int] = {}
        markers: dict[int, int] = {}
        records: dict[int, list[int]] = {}
        resets: dict[int, list[int]] = {}
        callbacks: dict[int, list[int]] = {}
        known = 0
        for number, do in enumerate(program):
            host, task = 2 * number, 2 * number + 1
            learned: int | None = None
            if do.what == "synchronize":
                learned = last.get(do.stream)
            elif do.what == "ask":
                learned = markers.get(do.event)
            elif do.what == "called" and callbacks.get(do.stream):
                learned = callbacks[do.stream].pop(0)
            if learned is not None:
                known |= self.upto(learned)
            self.before[host] = known
            known |= 1 << host
            if do.what == "host":
                self.accesses += [(host, access) for access in do.accesses]
            if do.what not in ("use", "record", "wait", "reset", "callback"):
                continue
            before = known
            if do.stream in last:
                before |= self.upto(last[do.stream])
            if do.what == "wait":
                if flavours[do.event] is Flavour.LEGACY:
                    passing = [
                        record
                        for record in records.get(do.event, ())
                        if not any(self.before[x] >> record & 1 and before >> x & 1 for x in resets.get(do.event, ()))
                    ]
                    if not passing:
                        raise WaitsForEver
                    common = self.upto(passing[0])
                    for record in passing[1:]:
                        common &= self.upto(record)
                    before |= common
                elif do.event in markers:
                    before |= self.upto(markers[do.event])
            elif do.what == "record":
                markers[do.event] = task
                records.setdefault(do.event, []).append(task)
            elif do.what == "reset":
                resets.setdefault(do.event, []).append(task)
            elif do.what == "callback":
                callbacks.setdefault(do.stream, []).append(task)
            elif do.what == "use":
                self.accesses += [(task, access) for access in do.accesses]
            self.before[task] = before
            last[do.stream] = task

    def upto(self, node: int) -> int:
        return self.before[node] | 1 << node

    @property
    def races(self) -> set[tuple[int, int]]:
        """Pairs of steps, by number, without an order, that touch the same bytes, one of them writing."""
        found = set()
        for (one, (block, start, end, wrote)), (other, (same, first, past, writes)) in itertools.combinations(
            self.accesses, 2
        ):
            if block != same or not (wrote or writes) or end <= first or past <= start or one == other:
                continue
            if not self.before[other] >> one & 1:
                found.add((one // 2, other // 2))
        return found


EVENTS = (Flavour.EX, Flavour.EX, Flavour.PLAIN, Flavour.LEGACY, *[Flavour.EX] * 5)
"""Of one instance: two between its streams, a plain and a legacy one in their places now and then; that a request is
done; that a staging buffer was read; that an output on the device was."""


class Instance:
    """One instance of a correct pipeline: three streams, `places` requests at most on the device.

    Inputs go from one of two staging buffers in pinned memory (block 1) to the device (block 0); runs read them and
    block 2, which all instances share, and write one of two outputs on the device, which are copied to pinned memory.
    """

    def __init__(self, random: Random, number: int, program: list[Do], places: int = 4) -> None:
        self.random = random
        self.program = program
        self.h2d, self.compute, self.d2h = (3 * number + part for part in range(3))
        self.events = [len(EVENTS) * number + part for part in range(len(EVENTS))]
        self.base = 4096 * number
        self.places = places
        self.turn = 0
        self.flying: list[int] = []
        self.uncalled: list[int] = []
        self.raised = False
        self.staged = [False, False]
        self.given = [False, False]

    def do(self, what: str, stream: int = 0, event: int = 0, *accesses: Access) -> None:
        self.program.append(Do(what, stream, event, accesses))

    def bytes(self, kind: int, which: int, size: int = BYTES, write: bool = False, start: int = 0) -> Access:
        """A buffer of a kind: 0 input, 1 output on the device; 2 input, 3 output in pinned memory."""
        place = self.base + 1024 * (kind % 2) + 128 * which
        return kind // 2, place + start, place + size, write

    def request(self) -> None:
        """Put one request on its way."""
        random, turn = self.random, self.turn
        while len(self.flying) >= random.randint(1, self.places):
            self.finish()
        self.turn += 1
        place, slot = turn % self.places, turn % 2
        size = random.randint(1, BYTES)
        if self.staged[slot]:
            self.do("ask", 0, self.events[5 + slot])
        self.do("host", 0, 0, self.bytes(2, slot, size, True))
        self.do("use", self.h2d, 0, self.bytes(2, slot, size), self.bytes(0, place, size, True))
        self.do("record", self.h2d, self.events[5 + slot])
        self.staged[slot] = True
        self.link(random.choice((0, 0, 2, 3)), self.h2d, self.compute)
        if self.given[slot]:
            self.do("wait", self.compute, self.events[7 + slot])
        parts = [self.bytes(0, place, size, start=random.randint(0, size - 1)) for _ in range(random.randint(0, 2))]
        parts += [self.bytes(0, place, size), (2, 0, BYTES, False), self.bytes(1, slot, BYTES, True)]
        self.do("use", self.compute, 0, *parts)
        self.link(random.choice((1, 1, 2)), self.compute, self.d2h)
        self.do("use", self.d2h, 0, self.bytes(1, slot), self.bytes(3, place, BYTES, True))
        self.do("record", self.d2h, self.events[7 + slot])
        self.given[slot] = True
        self.do("record", self.d2h, self.events[4])
        self.do("callback", self.d2h)
        self.uncalled.append(turn)
        self.flying.append(turn)

    def link(self, which: int, one: int, other: int) -> None:
        event = self.events[which]
        if which == 3:
            if self.raised:
                # the waiting stream takes the flag back, and the host knows before it is raised again
                self.do("reset", other, event)
                self.do("synchronize", other)
            self.raised = True
        self.do("record", one, event)
        self.do("wait", other, event)

    def finish(self) -> None:
        """Learn that the oldest request is done, and read its output."""
        turn = self.flying.pop(0)
        way = self.random.choice(("called", "synchronize", "ask"))
        if way == "called":
            while self.uncalled and self.uncalled[0] <= turn:
                self.uncalled.pop(0)
                self.do("called", self.d2h)
        else:
            self.do(way, self.d2h, self.events[4])
        self.do("host", 0, 0, self.bytes(3, turn % self.places))


def pipeline(random: Random, requests: int, instances: int = 2) -> tuple[list[Do], list[Flavour]]:
    """A correct program of so many requests."""
    program = [Do("host", accesses=((2, 0, BYTES, True),))]
    made = [Instance(random, number, program) for number in range(instances)]
    for _ in range(requests):
        random.choice(made).request()
    for one in made:
        while one.flying:
            one.finish()
    return program, [*EVENTS] * instances
