"""R24: an application that starts processes while copies are under way, which pyACL documents as dangerous on an NPU.

On the emulator everything stays right; on an NPU the vendor's limit holds (docs/reliability.md says so). aioascend
itself starts no process, ever.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import numpy as np
import pytest

import aioascend
from tests import kit


@pytest.mark.usefixtures("emulator")
async def test_50_children_while_16_requests_are_under_way(standing) -> None:
    shape = (1 << 19,)
    x = np.arange(shape[0], dtype=np.float32)
    async with aioascend.Session(kit.identity(1, shape)) as session, standing(session, x, x):
        done = threading.Event()

        def children() -> None:
            for _ in range(50):
                subprocess.run(["true"], check=True)
            done.set()

        async def caller(number: int) -> int:
            count = 0
            while not done.is_set():
                np.testing.assert_array_equal((await session.infer(x + number))[0], x + number)
                count += 1
            return count

        spawning = asyncio.create_task(asyncio.to_thread(children))
        counts = await asyncio.gather(*(caller(number) for number in range(16)))
        await spawning
        assert min(counts) >= 1


STARTS = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.system",
          "subprocess.Popen", "pty.spawn")  # fmt: skip
_starts: list[str] = []
_watching = threading.Event()


def _watch(event: str, _: tuple[object, ...]) -> None:
    if _watching.is_set() and event in STARTS:
        _starts.append(event)


@pytest.mark.usefixtures("emulator")
async def test_opening_running_and_closing_start_no_process(standing) -> None:
    sys.addaudithook(_watch)  # for good: hooks cannot be removed
    _watching.set()
    try:
        x = np.zeros(4, np.float32)
        async with aioascend.Session(kit.add(1)) as session, standing(session, x, x + 1):
            await asyncio.gather(*(session.infer(x) for _ in range(50)))
            async with session.request() as request:
                await request.run()
        aioascend.devices()
    finally:
        _watching.clear()
    assert _starts == []
