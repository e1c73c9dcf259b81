"""A soak: hours of changing sizes, failures, cancels, timeouts and faults, watched for growth.

    python tests/benchmarks/soak.py --minutes 20

Of the calls 1 % fail on the device, 1 % are cancelled and 1 % time out, at random moments; now and then the emulated
device fails a copy or a run, has no memory left, calls back late, hangs or is lost for a while. Sessions of other sizes
come and go meanwhile. What is printed is the slope of resident memory, of open handles (files and threads) and of the
99th percentile of latency, a straight line through the samples after the warm-up, per 10,000 calls. The exit code is 1
when one of them grows, 2 when an answer was wrong or anything was left at the end.

Thresholds, and why:

* memory: 1 MiB per 10,000 calls. ONNX Runtime alone costs 0.4 MiB for 10,000 good calls and 4.2 MiB for 10,000 failing
  ones, of which there are 1 % here; a buffer of the smallest model leaked by one call in a hundred is above it.
* handles: 0.5 per 10,000 calls. One leaked by each session that comes and goes would be tens.
* p99: 10 % of its mean per 10,000 calls, and only when the rise over the whole run exceeds 50 % of it: a shared machine
  has good and bad minutes, a queue that is never emptied doubles within a few thousand calls.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import random
import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import aioascend
from aioascend import driver
from aioascend.emulator import Config, Emulator
from tests import kit

CALLERS = 24
SAMPLE_S = 2.0
BACK_S = 60.0  # for a lost device to serve again, at the end: twice the longest time between two probes
SERVED = 0.5  # of the calls, at least, though the device is lost or hung now and then
STALL_S = 2.0  # before a run counts as hung: a busy machine may take its time
MEMORY_LIMIT = 1 << 20
HANDLE_LIMIT = 0.5
P99_RISE, P99_TOTAL = 0.10, 0.50
SIZES = (1, 2, 5, 16, 64, 300, 2000)  # rows of 96 bytes: inline copies, and some by the worker
PLANS = (
    ("a run fails with 507015", lambda faults: faults.fail_task("execute", 507015)),
    ("a copy fails with 507013", lambda faults: faults.fail_task("copy", 507013, nth=2)),
    ("a callback comes late", lambda faults: faults.delay_callback(0.05)),
    ("a submission is refused", lambda faults: faults.fail("acl.mdl.execute_async", 207008)),
    ("an event is not recorded", lambda faults: faults.fail("acl.rt.record_event", 207007)),
    ("a run hangs", lambda faults: faults.hang("execute")),
    ("the device is lost", lambda faults: faults.lose_device(0, at_task=5)),
    ("no pinned memory for an open", lambda faults: faults.fail("acl.rt.malloc_host", 207001)),
    ("no stream for an open", lambda faults: faults.fail("acl.rt.create_stream", 207005)),
)


class Soak:
    """The traffic, what became of it, and samples of what it costs."""

    def __init__(self, emulator: Emulator, seconds: float, seed: int) -> None:
        self.emulator = emulator
        self.seconds = seconds
        self.random = random.Random(seed)
        self.calls = 0
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.latencies: deque[float] = deque(maxlen=5000)
        self.samples: list[tuple[float, float, float, float]] = []  # calls, bytes, handles, p99
        self.sessions: list[tuple[aioascend.Session, int]] = []
        self.end = 0.0
        self.begun = 0.0

    async def run(self) -> None:
        """All of it."""
        self.begun = time.monotonic()
        self.end = self.begun + self.seconds
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.wrong.append(f"loop: {context.get('message')}"))
        failing = aioascend.Session(kit.out_of_bounds(), devices="emulator:0", stall_timeout=STALL_S)
        await failing.open()
        self.sessions = [(await self.opened(rows), rows) for rows in SIZES[:4]]
        work = [asyncio.create_task(self.caller(failing)) for _ in range(CALLERS)]
        work += [asyncio.create_task(self.comings_and_goings()), asyncio.create_task(self.trouble())]
        watch = asyncio.create_task(self.watch())
        await asyncio.gather(*work)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        self.emulator.faults.clear()
        limit = time.monotonic() + BACK_S
        while not all(session.ready for session, _ in [(failing, 0), *self.sessions]):
            if time.monotonic() > limit:
                self.wrong.append(f"the device is not brought back: {failing.statistics().devices}")
                break
            await asyncio.sleep(0.05)
        for session, rows in [(failing, 0), *self.sessions]:
            await self.settled(session, rows)
            await session.aclose()

    async def opened(self, rows: int) -> aioascend.Session:
        """A session for this many rows; opening is tried again while faults hit it."""
        while True:
            session = aioascend.Session(
                kit.pos("n"), devices="emulator:0", shapes={"x": (rows, 2, 3, 4)}, stall_timeout=STALL_S
            )
            try:
                await session.open()
            except aioascend.AioascendError as error:
                self.outcomes[f"open: {type(error).__name__}"] += 1
                await asyncio.sleep(0.05)
            else:
                return session

    async def settled(self, session: aioascend.Session, rows: int) -> None:
        """Nothing is left in flight, and the next answer is right."""
        for _ in range(500):
            now = session.statistics()
            if not (now.waiting or now.staging or now.running or now.draining or now.leased):
                break
            await asyncio.sleep(0.01)
        else:
            self.wrong.append(f"never came to rest: {session!r}")
        if rows:
            await self.infer(session, rows, "good")

    async def caller(self, failing: aioascend.Session) -> None:
        """One of the callers."""
        while time.monotonic() < self.end:
            self.calls += 1
            dice = self.random.random()
            if dice < 0.01:
                await self.fail(failing)
                continue
            session, rows = self.random.choice(self.sessions)
            kind = "cancel" if dice < 0.02 else "timeout" if dice < 0.03 else "pinned" if dice < 0.05 else "good"
            await self.infer(session, rows, kind)

    async def fail(self, failing: aioascend.Session) -> None:
        try:
            await failing.infer(np.array([9]))
        except aioascend.DeviceLost:
            await asyncio.sleep(0.05)
        except aioascend.AclError:
            self.outcomes["failed as it should"] += 1
        else:
            self.wrong.append("an index out of bounds was answered")

    async def infer(self, session: aioascend.Session, rows: int, kind: str) -> None:
        value = np.float32(self.random.randrange(1000))
        x = np.full((rows, 2, 3, 4), value, np.float32)
        started = time.perf_counter()
        try:
            if kind == "cancel":
                task = asyncio.ensure_future(session.infer(x))
                await asyncio.sleep(self.random.random() * 0.005)
                task.cancel()
                outputs = await task
            elif kind == "pinned":
                async with session.request() as request:
                    request.inputs["x"][:] = x
                    outputs = await request.run()
            else:
                limit = self.random.random() * 0.005 if kind == "timeout" else None
                outputs = await session.infer(x, timeout=limit)
        except asyncio.CancelledError:
            self.outcomes["cancelled"] += 1
        except aioascend.DeadlineExceeded:
            self.outcomes["timed out"] += 1
        except aioascend.SessionClosed:
            self.outcomes["session closed meanwhile"] += 1
        except aioascend.StaleLease:
            self.outcomes["pinned memory went with its context"] += 1
        except aioascend.AclError as error:
            self.outcomes[f"hit by a fault: {type(error).__name__}"] += 1
            if not session.ready:
                await asyncio.sleep(0.05)  # as whoever is told that the device does not answer would
        else:
            self.outcomes["right"] += 1
            if not (outputs[0] == value * kit.POS_WEIGHT).all():
                self.wrong.append(f"a wrong answer for {rows} rows")
            if kind == "good":
                self.latencies.append(time.perf_counter() - started)

    async def comings_and_goings(self) -> None:
        """Sessions of other sizes take the place of those there are."""
        while time.monotonic() < self.end:
            await asyncio.sleep(1.0)
            place = self.random.randrange(len(self.sessions))
            rows = self.random.choice(SIZES)
            new = await self.opened(rows)
            (old, _), self.sessions[place] = self.sessions[place], (new, rows)
            await old.aclose(drain=self.random.random() < 0.7)
            self.outcomes["sessions replaced"] += 1

    async def trouble(self) -> None:
        """Faults, one at a time."""
        while time.monotonic() < self.end:
            await asyncio.sleep(0.5)
            name, plan = self.random.choice(PLANS)
            plan(self.emulator.faults)
            self.outcomes[f"fault: {name}"] += 1
            await asyncio.sleep(0.3)
            self.emulator.faults.clear()

    async def watch(self) -> None:
        """Samples, and a bar for whoever waits."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            gc.collect()
            p99 = float(np.percentile(self.latencies, 99)) if self.latencies else 0.0
            self.samples.append((self.calls, resident(), handles(), p99))
            show(time.monotonic() - self.begun, self.seconds, self.calls, self.samples[-1])


def show(passed: float, seconds: float, calls: int, sample: tuple[float, float, float, float]) -> None:
    """One line that is written over."""
    if not sys.stderr.isatty():
        return
    done = min(1.0, passed / seconds)
    bar = "#" * int(30 * done) + "." * (30 - int(30 * done))
    text = f"[{bar}] {passed / 60:5.1f} min  {calls:>9,} calls  {sample[1] / 2**20:6.1f} MiB  {int(sample[2])} handles"
    print(f"\r{text}  p99 {sample[3] * 1e3:6.2f} ms ", end="", file=sys.stderr, flush=True)


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles() -> int:
    """Open files and threads of this process."""
    return len(os.listdir("/proc/self/fd")) + threading.active_count()


def slope(samples: np.ndarray, column: int) -> float:
    """Growth per 10,000 calls of a straight line through the samples."""
    return float(np.polyfit(samples[:, 0], samples[:, column], 1)[0]) * 10_000


def judge(soak: Soak) -> int:
    """Print what was found; the exit code."""
    samples = np.array(soak.samples)
    warm = samples[len(samples) // 4 :]  # caches fill and arenas grow at first
    print(f"\n{soak.calls:,} calls in {soak.seconds / 60:.1f} min")
    for name, count in sorted(soak.outcomes.items()):
        print(f"  {count:>10,}  {name}")
    if len(warm) < 4:
        print("too short for a slope: give it a minute at least", file=sys.stderr)
        return 2 if soak.wrong else 0
    memory, held, tail = (slope(warm, column) for column in (1, 2, 3))
    mean, span = float(warm[:, 3].mean()), float(warm[-1, 0] - warm[0, 0]) / 10_000
    print(f"after the warm-up, {len(warm)} samples, per 10,000 calls:")
    if soak.outcomes["right"] < SERVED * soak.calls:
        soak.wrong.append(f"{soak.outcomes['right']:,} of {soak.calls:,} calls were answered: a soak has to be served")
    limit, end = MEMORY_LIMIT / 2**20, warm[-1, 1] / 2**20
    print(f"  memory   {memory / 2**20:+8.3f} MiB   (limit {limit:.0f}; {end:.1f} at the end)")
    print(f"  handles  {held:+8.3f}       (limit {HANDLE_LIMIT}; {int(warm[-1, 2])} at the end)")
    print(f"  p99      {tail * 1e3:+8.3f} ms    (limit {P99_RISE:.0%} of {mean * 1e3:.2f} ms, {P99_TOTAL:.0%} in all)")
    grown = []
    if memory > MEMORY_LIMIT:
        grown.append("memory")
    if held > HANDLE_LIMIT:
        grown.append("handles")
    if tail > P99_RISE * mean and tail * span > P99_TOTAL * mean:
        grown.append("p99")
    for text in soak.wrong[:20]:
        print(f"WRONG: {text}", file=sys.stderr)
    if grown:
        print(f"GROWS: {', '.join(grown)}", file=sys.stderr)
    return 2 if soak.wrong else 1 if grown else 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (30)")
    parser.add_argument("--seed", type=int, default=1, help="of the dice (1)")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)  # every fault is told, thousands of them
    emulator = Emulator(Config())
    driver.install(driver.Backend("emulator", emulator.acl, emulator))
    soak = Soak(emulator, arguments.minutes * 60, arguments.seed)
    asyncio.run(soak.run())
    left = [str(leak) for leak in emulator.report().leaks if leak.kind != "init"]
    # What hangs cannot be waited for: the subscription of its stream ends before its callbacks.
    forbidden = {one.rule: one for one in emulator.report().violations if one.rule != "callback-dropped"}
    soak.wrong += [f"left behind: {leak}" for leak in left]
    soak.wrong += [f"forbidden: {violation}" for violation in forbidden.values()]
    return judge(soak)


if __name__ == "__main__":
    sys.exit(main())
