"""Whose stream hangs: judged on a simulated device that is fair, without threads and clocks."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from aioascend.scheduling.watchdog import Sight, Watchdog

LOOK = 0.5


class Simulated:
    """Lanes that share `cores`: each takes turns of one run; a run of `inf` seconds never ends."""

    def __init__(self, cores: int, runs: list[list[float]], limits: list[float | None]) -> None:
        self.now = 0.0
        self.runs = [deque(lane) for lane in runs]
        self.limits = limits
        self.ended = [0] * len(runs)
        self.cores = cores
        self.ready: deque[int] = deque(range(len(runs)))
        self.going: list[tuple[float, int]] = []  # when it ends, which lane
        self._begin()

    def _begin(self) -> None:
        while self.ready and len(self.going) < self.cores:
            lane = self.ready.popleft()
            if self.runs[lane]:
                self.going.append((self.now + self.runs[lane][0], lane))

    def advance(self, until: float) -> None:
        while self.going and min(self.going)[0] <= until:
            end, lane = min(self.going)
            self.going.remove((end, lane))
            self.now = end
            self.runs[lane].popleft()
            self.ended[lane] += 1
            self.ready.append(lane)
            self._begin()
        self.now = until

    def sights(self) -> dict[int, Sight]:
        return {
            lane: Sight(self.ended[lane], bool(self.runs[lane]), self.limits[lane]) for lane in range(len(self.runs))
        }


@settings(deadline=None)
@given(st.data())
def test_runs_within_their_limits_are_never_taken_for_stalled(data: st.DataObject) -> None:
    """However long the queues, and however the lanes share the cores."""
    lanes = data.draw(st.integers(1, 4))
    limits = data.draw(st.lists(st.sampled_from([2.0, 5.0, 20.0, None]), min_size=lanes, max_size=lanes))
    runs = [
        data.draw(st.lists(st.floats(0.1, 30.0 if limit is None else limit * 0.99), max_size=8)) for limit in limits
    ]
    device = Simulated(data.draw(st.integers(1, 3)), runs, limits)
    watchdog: Watchdog[int] = Watchdog()
    for step in range(1, 2000):
        _, stalled = watchdog.look(device.now, device.sights())
        assert not stalled
        if not any(device.runs):
            break
        device.advance(step * LOOK)


@settings(deadline=None)
@given(st.data())
def test_a_run_that_never_ends_is_found_whatever_the_other_lanes_do(data: st.DataObject) -> None:
    others = data.draw(st.integers(0, 3))
    limit = data.draw(st.sampled_from([2.0, 5.0, 10.0]))
    hung = [*data.draw(st.lists(st.floats(0.1, 1.9), max_size=3)), float("inf"), 1.0]
    runs = [hung, *(data.draw(st.lists(st.floats(0.1, 1.9), min_size=1, max_size=200)) for _ in range(others))]
    device = Simulated(data.draw(st.integers(1, 3)), runs, [limit] * len(runs))
    watchdog: Watchdog[int] = Watchdog()
    began: float | None = None
    for step in range(1, 2000):
        _, stalled = watchdog.look(device.now, device.sights())
        if began is None and any(lane == 0 and end == float("inf") for end, lane in device.going):
            began = device.now
        if stalled:
            assert began is not None
            # Each of the others may have put the clock back twice, by a run each.
            assert device.now - began <= limit + 2 * others * (1.9 + LOOK) + 3 * LOOK
            if device.cores > others:
                assert stalled == [0]
            return
        device.advance(step * LOOK)
    raise AssertionError("it was never found")


def test_a_lane_without_a_limit_never_stalls_and_is_looked_after_all_the_same() -> None:
    watchdog: Watchdog[str] = Watchdog()
    assert watchdog.look(0.0, {"a": Sight(0, True)}) == ([], [])
    assert watchdog.look(1e9, {"a": Sight(0, True)}) == (["a"], [])
    assert watchdog.look(2e9, {"a": Sight(1, True)}) == ([], [])
    assert watchdog.look(3e9, {"a": Sight(1, False)}) == ([], [])
    assert watchdog.look(4e9, {}) == ([], [])


def test_a_lane_that_only_waits_for_the_result_of_another_keeps_no_core_from_anybody() -> None:
    watchdog: Watchdog[str] = Watchdog()
    for now, stalled in ((0.0, []), (0.5, []), (1.0, ["hung"])):
        sights = {
            "hung": Sight(0, True, 1.0),
            "reader": Sight(0, True, 300.0, waits=True),
            "endless": Sight(0, True, None, True),
        }
        assert watchdog.look(now, sights)[1] == stalled
    for now, stalled in ((0.0, []), (1.0, []), (300.0, ["hung", "reader"])):  # one that may hold a core counts
        watchdog = watchdog if now else Watchdog()
        assert watchdog.look(now, {"hung": Sight(0, True, 1.0), "reader": Sight(0, True, 300.0)})[1] == stalled
