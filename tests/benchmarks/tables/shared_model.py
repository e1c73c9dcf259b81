from __future__ import annotations

import statistics
import threading
from time import perf_counter as now

import aioascend
from aioascend.memory.layout import plan

from ..harness import Line, Settings, on_uvloop
from ..raw import RawModel
from ..worlds import device, head, run_all, staged, zeros

TITLE = "four clients of one model: four threads that share its id, its stream and a lock, and a limited depth"
PROFILE = "2/8/1 ms"

CLIENTS = 4


def measure(settings: Settings) -> list[Line]:
    """Requests a second of one thread, of four under a lock, and of a session of depth 2 with four callers."""
    count = settings.of(200, 20)
    alone, shared, ours = [], [], []

    def threads(model: RawModel, clients: int) -> float:
        lock = threading.Lock()

        def client() -> None:
            model.enter()
            for _ in range(count // clients):
                with lock:
                    model.run()

        workers = [threading.Thread(target=client) for _ in range(clients)]
        start = now()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return count // clients * clients / (now() - start)

    async def session_rounds() -> None:
        async with aioascend.Session(head(), devices="emulator:0", depth=2) as session:
            x = zeros(session)
            await session.infer(x)
            for _ in range(settings.rounds):
                seconds = await run_all(lambda: session.infer(x), count, CLIENTS)
                ours.append(count / seconds)

    with device(staged(2, 8, 1)) as emulator:
        model = RawModel(emulator, head(), plan([160]).nbytes, plan([64]).nbytes)
        for _ in range(settings.rounds):
            alone.append(threads(model, 1))
            shared.append(threads(model, CLIENTS))
        model.close()
        on_uvloop(session_rounds())
    one, four, depth = (statistics.median(each) for each in (alone, shared, ours))
    return [
        Line("one thread", "1x", f"{one:.1f}/s (raw calls)", "90.9/s"),
        Line("four threads and a lock", "no gain, or less", f"{four:.1f}/s, {four / one:.2f}x (raw calls)", "90.9/s"),
        Line("a session, depth 2, four callers", "two at once", f"{depth:.1f}/s, {depth / one:.2f}x", "125/s, 1.38x"),
    ]
