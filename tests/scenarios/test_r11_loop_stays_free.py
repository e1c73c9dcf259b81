"""R11: the caller's loop is never blocked: a 5 ms ticker on it measures the largest gap.

A shared machine has gaps of its own: a ticker in a process beside tells them, they are taken off, and each case is
judged by the median of several runs.
"""

from __future__ import annotations

import asyncio
import base64
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import aioascend
from tests import kit
from tests.scenarios.programs import await_listening, commanded, run

needs_a_free_load = pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 31),
    reason="onnxruntime before 1.31 holds the GIL while it makes a session",
)
pytestmark = [pytest.mark.usefixtures("emulator"), pytest.mark.slow]

LIMIT = 0.050

CONTROL = """
import sys, threading, time
largest = 0.0
def tick():
    global largest
    last = time.perf_counter()
    while True:
        time.sleep(0.005)
        now = time.perf_counter()
        largest = max(largest, now - last)
        last = now
threading.Thread(target=tick, daemon=True).start()
for _ in sys.stdin:
    print(largest, flush=True)
    largest = 0.0
"""


class Control:
    """A 5 ms ticker that nothing but the machine can hold up."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", CONTROL]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def largest(self) -> float:
        """Its largest gap since it was last asked, in seconds."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n")
        stdin.flush()
        return float(stdout.readline())

    def stop(self) -> None:
        """End its process."""
        self._process.communicate()


@pytest.fixture(scope="module")
def control() -> Iterator[Control]:
    """Made once for all cases."""
    made = Control()
    yield made
    made.stop()


async def largest_gap(work: Callable[[], Awaitable[object]]) -> float:
    """The largest time between two ticks of a 5 ms ticker while `work` runs."""
    largest = 0.0

    async def tick() -> None:
        nonlocal largest
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.005)
            now = time.perf_counter()
            largest = max(largest, now - last)
            last = now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    try:
        await work()
        await asyncio.sleep(0.01)
    finally:
        ticker.cancel()
    return largest


async def judge(control: Control, prepare: Callable[[], Awaitable[Callable[[], Awaitable[object]]]]) -> None:
    """Run `prepare` and then what it returns under the ticker; the median of 3, or of 9 where that is not enough."""

    async def gap() -> float:
        work = await prepare()
        control.largest()
        return await largest_gap(work) - control.largest()

    gaps = [await gap() for _ in range(3)]
    if statistics.median(gaps) > LIMIT:
        gaps = [await gap() for _ in range(9)]
    assert statistics.median(gaps) <= LIMIT, gaps


@needs_a_free_load
async def test_while_a_64_mb_model_is_opened_and_closed(control: Control, tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    path.write_bytes(kit.big(64))

    async def prepare() -> Callable[[], Awaitable[object]]:
        async def work() -> None:
            async with aioascend.Session(path) as session:
                await session.infer({"x": np.ones(4, np.float32), "z": 0.0})

        return work

    await judge(control, prepare)


@needs_a_free_load
async def test_while_a_64_mb_model_is_opened_from_bytes(control: Control) -> None:
    model = kit.big(64)

    async def prepare() -> Callable[[], Awaitable[object]]:
        async def work() -> None:
            async with aioascend.Session(model):
                pass

        return work

    await judge(control, prepare)


async def test_while_a_200_mb_non_contiguous_input_is_inferred(control: Control) -> None:
    wide = np.ones((5000, 10000), np.float32)
    x = np.broadcast_to(wide[:, ::2].T, (2, 5000, 5000))
    async with aioascend.Session(kit.identity(TensorProto.FLOAT, (2, 5000, 5000)), depth=1) as session:

        async def prepare() -> Callable[[], Awaitable[object]]:
            return lambda: session.infer(x)

        await judge(control, prepare)


async def test_while_the_device_computes_for_a_quarter_of_a_second(control: Control) -> None:
    x = np.eye(700, dtype=np.float32)
    async with aioascend.Session(kit.slow(40)) as session:

        async def prepare() -> Callable[[], Awaitable[object]]:
            return lambda: session.infer(x)

        await judge(control, prepare)


async def test_while_2000_requests_are_made_at_once(control: Control) -> None:
    async with aioascend.Session(kit.add(1), max_waiting=4096) as session:
        x = np.zeros(4, np.float32)

        async def prepare() -> Callable[[], Awaitable[object]]:
            async def work() -> None:
                for _ in range(20):
                    await asyncio.gather(*(session.infer(x) for _ in range(100)))

            return work

        await judge(control, prepare)


async def test_while_a_session_with_work_in_flight_is_closed(control: Control) -> None:
    x = np.eye(700, dtype=np.float32)

    async def prepare() -> Callable[[], Awaitable[object]]:
        session = aioascend.Session(kit.slow(20))
        await session.open()
        tasks = [asyncio.create_task(session.infer(x)) for _ in range(4)]
        await asyncio.sleep(0.01)

        async def work() -> None:
            await session.aclose()
            await asyncio.gather(*tasks)

        return work

    await judge(control, prepare)


async def test_while_a_device_that_does_not_exist_is_opened(control: Control) -> None:
    async def prepare() -> Callable[[], Awaitable[object]]:
        async def work() -> None:
            with pytest.raises(aioascend.BackendUnavailable):
                await aioascend.Session(kit.add(1), devices="emulator:99").open()

        return work

    await judge(control, prepare)


SERVER = """
import os
import numpy as np
import aioascend

EYE = np.eye(700, dtype=np.float32)
session = aioascend.Session(os.environ["MODEL"])

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        async with session:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["path"] == "/run":
        await session.infer(EYE)
    await send({"type": "http.response.start", "status": 200 if session.ready else 503, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
"""


async def test_the_health_check_of_a_web_server_under_full_load(control: Control, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(kit.slow(10))
    (tmp_path / "server.py").write_text(SERVER)
    address = tmp_path / "socket"
    command = [sys.executable, "-m", "uvicorn", "server:app", "--app-dir", str(tmp_path), "--uds", str(address)]
    with commanded([*command, "--log-level", "warning"], {"MODEL": str(tmp_path / "model.onnx")}) as server:
        await asyncio.to_thread(await_listening, address)
        transport = httpx.AsyncHTTPTransport(uds=str(address), limits=httpx.Limits(max_connections=None))
        async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=60) as client:

            async def load() -> None:
                while True:
                    assert (await client.get("/run")).status_code == 200

            callers = [asyncio.create_task(load()) for _ in range(8)]
            p99s = []
            for _ in range(4):  # the machine is shared, and so is this process with its eight callers
                times = []
                control.largest()
                for _ in range(50):
                    started = time.perf_counter()
                    assert (await client.get("/health")).status_code == 200
                    times.append(time.perf_counter() - started)
                    await asyncio.sleep(0.02)
                p99s.append(statistics.quantiles(times, n=100)[98] - control.largest())
                if p99s[-1] <= 0.1:
                    break
            for caller in callers:
                caller.cancel()
            await asyncio.gather(*callers, return_exceptions=True)
        assert min(p99s) <= 0.1, p99s
        server.send(signal.SIGTERM)
        assert server.finish(timeout=20).err == ""


IMPORTS = """
import base64

from aioascend import telemetry

known = set()

def news(door):
    new = sorted(set(sys.modules) - known)
    known.update(new)
    if new:
        print(door, new, flush=True)

async def main():
    x = np.ones(4, np.float32)
    async with aioascend.Session(base64.b64decode(sys.argv[1])) as session:
        known.update(sys.modules)
        await session.infer(x, timeout=30)
        news("infer")
        await (await session.submit(x))
        news("submit")
        async with session.request() as request:
            await request.run()
        news("request")
        async for _ in session.map([x, x]):
            pass
        news("map")
        call = asyncio.ensure_future(session.infer(x))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        for inputs, timeout in ((x, 1e-9), (x[1:], None)):
            try:
                await session.infer(inputs, timeout=timeout)
            except aioascend.AioascendError:
                pass
        news("errors")
        async with telemetry.record(session):
            await session.infer(x)
        news("record")
    news("close")

asyncio.run(main())
"""


def test_nothing_is_imported_on_the_callers_loop_once_a_session_is_open() -> None:
    """The first inference is no slower than the next: numpy.ma alone takes 10 ms or more."""
    done = run(IMPORTS, base64.b64encode(kit.add(1)).decode())
    assert (done.err, done.code, done.out) == ("", 0, "")
