"""How many requests a session has on its device at once: a number, or what is measured when it is opened."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from .arguments import finite_seconds, share_of, whole_number
from .errors import InvalidInput, OutOfMemory
from .runtime.core import DeviceCore
from .runtime.pipeline import Pipeline
from .runtime.request import Request
from .scheduling.autodepth import GAIN, LEAST, MOST, Choice, DepthSearch, steady_rate

__all__ = ["GIVEN", "MOST_DEPTH", "NOT_MEASURED", "AutoDepth", "depth_of", "find_depth"]

logger = logging.getLogger("aioascend.session")

# A stream holds about 2,000 tasks, and a submission to a full one blocks with the GIL held (pyACL reference §3); a
# request takes three of them at most.
MOST_DEPTH = 256
GIVEN = "it was given"
NOT_MEASURED = "it is measured when the session is opened"

_TRIAL_S = 0.2  # what a depth is measured for, where its requests are quick
_LOOK_S = 0.05  # how long a wait goes on before it looks whether anybody still wants the session


@dataclass(frozen=True)
class AutoDepth:
    """The bounds of a search for the depth: ``Session(model, depth=AutoDepth(most=4))``.

    One more place has to bring `gain` more throughput (0.05: 5 %) to be kept; `most` is the greatest depth that is
    tried. After `seconds` the search ends with what it has found, and needs no more than the runs on the device to do
    so. Raises `InvalidInput` for what makes no sense.
    """

    gain: float = GAIN
    most: int = MOST
    seconds: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gain", share_of("AutoDepth: gain", self.gain))
        object.__setattr__(self, "most", whole_number("AutoDepth: most", self.most, 1, MOST_DEPTH))
        object.__setattr__(self, "seconds", finite_seconds("AutoDepth: seconds", self.seconds))


def depth_of(depth: Any, most: int) -> tuple[AutoDepth | None, int]:
    """The search to make, if any, and the depth to begin with; raises `InvalidInput`."""
    if isinstance(depth, AutoDepth):
        return depth, 1
    if isinstance(depth, str) and depth == "auto":
        return AutoDepth(), 1
    if depth is None or isinstance(depth, str):
        raise InvalidInput(f'depth: wanted a whole number of at least 1, "auto" or an AutoDepth, given {depth!r}')
    return None, whole_number("depth", depth, 1, most)


def find_depth(
    core: DeviceCore, pipeline: Pipeline, auto: AutoDepth, make: Callable[[], Request], wanted: Callable[[], bool]
) -> Choice:
    """Measure depths from 1 upwards on a pipeline that nobody else uses yet, and leave it with the one chosen.

    Not on a thread of the device, nor on a loop. `make` gives requests to run; what their runs raise is raised. The
    search is given up when its time is over, when there is no memory for another place, and when `wanted` says so, in
    which case requests may be left behind.
    """
    search = DepthSearch(gain=auto.gain, most=auto.most)
    counters = replace(pipeline.counters)
    trial = _Trial(pipeline, make, wanted, monotonic() + auto.seconds)
    trial.run(1, 0.0)  # the first run of a model is slower than any after it
    while (depth := search.trying) is not None:
        try:
            if depth > pipeline.depth:
                core.control(pipeline.grow).result()
            seconds = min(_TRIAL_S, auto.seconds / 4)
            rate = trial.measure(seconds)
            if rate is not None and not search.pays(rate):
                # Once more: a pause of the machine must not be what the session's depth is owed to.
                rate = max(rate, trial.measure(seconds) or 0.0)
        except OutOfMemory as error:
            if depth == 1:
                raise
            search.give_up(f"there is no memory for depth {depth}: {error}")
            break
        if rate is None:
            search.give_up(
                f"the {auto.seconds:g} s for the search were over before depth {depth} was measured; "
                "AutoDepth(seconds=...) gives it longer"
                if wanted()
                else "the session was closed while it was being opened"
            )
            break
        search.measured(rate)
    choice = search.choice
    assert choice is not None
    if wanted():
        while pipeline.depth > choice.depth:
            core.control(pipeline.shrink).result()
        # What was run for the search are nobody's requests.
        core.call(lambda: pipeline.recount(counters)).result()
    curve = ", ".join(f"{depth}: {rate:.1f}" for depth, rate in search.curve.items())
    logger.debug("requests a second by depth: %s", curve or "none was measured")
    return choice


class _Trial:
    """Runs requests one after the other, so many at once that the pipeline is never short of them."""

    def __init__(
        self, pipeline: Pipeline, make: Callable[[], Request], wanted: Callable[[], bool], limit: float
    ) -> None:
        self._pipeline = pipeline
        self._make = make
        self._wanted = wanted
        self._limit = limit

    def measure(self, seconds: float) -> float | None:
        """Requests a second at the depth that the pipeline has; None where there was no time for it."""
        places = self._pipeline.depth * len(self._pipeline.lanes)
        return steady_rate(self.run(places + 2, seconds, places + LEAST), places)

    def run(self, at_once: int, seconds: float, least: int = 1) -> list[float]:
        """Run requests for `seconds`, and `least` of them at least, and give the times of their ends."""
        pipeline = self._pipeline
        ends: list[float] = []
        pending: deque[Request] = deque()
        enough = monotonic() + seconds
        try:
            while monotonic() < enough or len(ends) < least:
                while len(pending) < at_once:
                    request = self._make()
                    pending.append(request)
                    pipeline.submit(request)
                if not self._ended(pending[0], self._limit):
                    break
                pending.popleft().result()
                ends.append(monotonic())
        finally:
            for request in pending:
                pipeline.abandon(request)
            for request in pending:
                self._ended(request, None)
        return ends

    def _ended(self, request: Request, limit: float | None) -> bool:
        """Wait for the end of a request: until `limit`, or until nobody wants it any more."""
        while self._wanted():
            left = _LOOK_S if limit is None else min(_LOOK_S, limit - monotonic())
            if left <= 0:
                return False
            if request.done.wait_blocking(left):
                return True
        return False
