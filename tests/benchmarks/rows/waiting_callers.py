from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

from aioascend.driver import Backend

from ..harness import Outcome, Row, Settings, on_uvloop
from ..worlds import null_session, zeros

ROW = Row(
    "10,000 waiting callers: memory each, above a bare task awaiting a future",
    "KiB",
    4.0,
    2.0,
    "lower",
    "null_acl",
    "3",
)


class Gate:
    """Holds completions back until it is opened."""

    def __init__(self) -> None:
        self._held: list[tuple[Any, ...]] = []
        self._open = False

    def install(self, backend: Backend) -> None:
        launch = backend.acl.rt.launch_callback

        def launch_callback(*arguments: Any) -> int:
            if not self._open:
                self._held.append(arguments)
                return 0
            result: int = launch(*arguments)
            return result

        backend.acl.rt.launch_callback = launch_callback
        self._launch = launch

    def open(self) -> None:
        self._open = True
        for arguments in self._held:
            self._launch(*arguments)


async def traced(tasks: list[asyncio.Task[object]]) -> None:
    """Let what was started get to where it waits."""
    for _ in range(20):
        await asyncio.sleep(0.02)
    gc.collect()
    assert not any(task.done() for task in tasks)


def measure(settings: Settings) -> Outcome:
    """Counted by `tracemalloc`: what Python's allocators gave out and did not get back."""
    count = settings.of(10_000, 500)
    outcome = Outcome(notes={"callers": count})

    async def bare(future: asyncio.Future[None]) -> None:
        await future

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(settings.rounds):  # memory does not mind neighbours
            gate = Gate()
            with null_session(gate.install, depth=3, max_waiting=2 * count) as session:
                async with session:
                    x = zeros(session)
                    used = []
                    futures = [loop.create_future() for _ in range(0)]
                    for kind in ("bare", "infer"):
                        gc.collect()
                        before = tracemalloc.get_traced_memory()[0]
                        if kind == "bare":
                            futures = [loop.create_future() for _ in range(count)]
                            tasks = [loop.create_task(bare(future)) for future in futures]
                        else:
                            tasks = [loop.create_task(session.infer(x)) for _ in range(count)]
                        await traced(tasks)
                        used.append((tracemalloc.get_traced_memory()[0] - before) / count / 1024)
                        if kind == "bare":
                            for future in futures:
                                future.set_result(None)
                        else:
                            gate.open()
                        await asyncio.gather(*tasks)
                        del tasks[:], futures[:]
                    outcome.values.append(used[1] - used[0])
                    outcome.notes["a bare task, KiB"] = round(used[0], 2)

    tracemalloc.start()
    try:
        on_uvloop(main())
    finally:
        tracemalloc.stop()
    return outcome
