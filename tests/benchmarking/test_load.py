"""What the two kinds of load measure. Times are generous: only their order is looked at."""

from __future__ import annotations

import asyncio
import time
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioascend.benchmarking import Load, Loaded, closed_loop, open_loop
from aioascend.benchmarking.load import schedule
from aioascend.errors import Overloaded

QUICK = Load(duration=0.2, warmup=0.0, warmup_count=0)


class Server:
    """Answers after `seconds`, and counts how many it works on at once."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.asked = self.now = self.most = 0

    async def __call__(self) -> None:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.seconds)
        self.now -= 1


async def test_callers_of_a_closed_loop_wait_for_their_answers() -> None:
    server, loaded = Server(0.001), Loaded()
    await closed_loop(server, 3, QUICK, loaded)

    assert server.most == 3
    assert server.now == 0
    assert loaded.count == loaded.answers
    assert loaded.wall >= 0.2
    assert loaded.throughput == loaded.answers / loaded.wall
    assert min(loaded.latencies) >= 0.001


async def test_a_number_of_requests_is_measured_exactly_after_the_warm_up() -> None:
    server, loaded = Server(), Loaded()
    await closed_loop(server, 1, Load(iterations=25, warmup=0.0, warmup_count=10), loaded)

    assert loaded.count == 25
    assert server.asked == 35


async def test_the_warm_up_lasts_for_its_time_as_well() -> None:
    started = time.perf_counter()
    loaded = Loaded()
    await closed_loop(Server(), 2, Load(iterations=1, warmup=0.1, warmup_count=1), loaded)

    assert time.perf_counter() - started >= 0.1
    assert loaded.count == 1


async def test_an_error_ends_a_closed_loop_and_leaves_no_task() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await closed_loop(fail, 4, QUICK, Loaded())
    assert len(asyncio.all_tasks()) == 1


async def test_an_open_loop_sends_at_its_rate_whatever_the_answers_do() -> None:
    server, loaded = Server(0.05), Loaded()
    await open_loop(server, 200.0, Load(iterations=30, warmup=0.0, warmup_count=0), loaded)

    assert server.asked == loaded.count == len(loaded.send_delays) == 30
    assert server.most > 1
    assert server.now == 0


async def test_a_pause_of_the_system_is_in_the_latency_of_all_that_were_due_in_it() -> None:
    """Of 100 a second, a loop that stands still for 0.3 s delays 30; a closed loop of one caller would show one."""
    loaded = Loaded()

    async def stand_still() -> None:
        await asyncio.sleep(0.1)
        time.sleep(0.3)  # noqa: ASYNC251

    pause = asyncio.ensure_future(stand_still())
    await open_loop(Server(), 100.0, Load(iterations=60, warmup=0.0, warmup_count=0), loaded)
    await pause

    assert loaded.count == 60
    assert sum(latency > 0.05 for latency in loaded.latencies) >= 20
    assert max(loaded.latencies) > 0.2
    assert sum(delay > 0.05 for delay in loaded.send_delays) >= 20


async def test_the_refused_are_counted_and_are_in_no_latency() -> None:
    server = Server()

    async def every_other() -> None:
        odd = server.asked % 2
        await server()
        if odd:
            raise Overloaded("full", retry_after=None)

    loaded = Loaded()
    await open_loop(every_other, 500.0, Load(iterations=40, warmup=0.0, warmup_count=0), loaded)

    assert loaded.refused + loaded.count == 40
    assert loaded.refused == 20


async def test_the_warm_up_of_an_open_loop_is_not_measured() -> None:
    server, loaded = Server(), Loaded()
    await open_loop(server, 500.0, Load(iterations=10, warmup=0.05, warmup_count=1), loaded)

    assert loaded.count == 10
    assert server.asked > 20


async def test_an_error_ends_an_open_loop_and_leaves_no_task() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await open_loop(fail, 100.0, Load(duration=10.0), Loaded())
    assert len(asyncio.all_tasks()) == 1


async def test_loads_can_be_cancelled() -> None:
    for load in (
        closed_loop(Server(10.0), 2, Load(), Loaded()),
        open_loop(Server(10.0), 50.0, Load(), Loaded()),
    ):
        task = asyncio.ensure_future(load)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(asyncio.all_tasks()) == 1


@given(st.floats(0.1, 1e5))
def test_a_constant_rate_has_equal_distances_that_do_not_drift(rate: float) -> None:
    times = list(islice(schedule(rate, "constant"), 1000))

    assert times[0] == 0
    assert times[-1] == 999 / rate


@given(st.floats(0.1, 1e5), st.integers(0, 1000))
def test_a_poisson_process_has_the_rate_in_the_mean_and_can_be_repeated(rate: float, seed: int) -> None:
    times = list(islice(schedule(rate, "poisson", seed), 2001))

    assert times == list(islice(schedule(rate, "poisson", seed), 2001))
    assert all(before <= after for before, after in pairwise(times))
    assert times[-1] * rate == pytest.approx(2000, rel=0.15)
