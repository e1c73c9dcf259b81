"""What is measured of a model: three base figures, and for each depth and load throughput, latency and stages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter as now
from typing import Any, Literal

from ..errors import AioascendError
from ..model import TensorSpec
from ..runtime.device import Device
from ..scheduling.autodepth import Choice, DepthSearch, choose
from ..session import Session
from ..telemetry import Summary, Timeline, record, summarize
from .load import Call, Distribution, Load, Loaded, closed_loop, open_loop

__all__ = ["Level", "Plan", "Progress", "Result", "measure"]

Inputs = Callable[[Sequence[TensorSpec]], dict[str, Any]]
Progress = Callable[[str, float], None]
"""Called now and then with what is being measured and the share of it that is over (0 to 1)."""

_TICK_S = 0.1
_STAGES_S = 1.0  # how long the stages are timed
_MOST_TIMED = 10_000


@dataclass(frozen=True)
class Plan:
    """What to measure.

    `options` are arguments of `Session` beside model, devices, depth and instances. `depths` may be "auto": from 1
    upwards for as long as it pays. The load is `rates` (requests a second, open loop) or `concurrency` (callers,
    closed loop), each of them at each depth; without both two callers more than there are places, so that the next
    request is always there. `inputs` makes the inputs from what the model takes.
    """

    model: str
    inputs: Inputs
    devices: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    depths: Sequence[int] | Literal["auto"] = (3,)
    instances: int = 1
    concurrency: Sequence[int] = ()
    rates: Sequence[float] = ()
    distribution: Distribution = "constant"
    load: Load = field(default_factory=Load)
    percentiles: Sequence[float] = (50, 90, 95, 99)


@dataclass(frozen=True)
class Level:
    """One depth under one load; times are seconds.

    `stages` is the split of latency (see `telemetry.RequestTimes`), `streams` the work of each stream, `busy` the
    share of the time in which each stream had some: of requests that were sent after the measured ones, because the
    events that time the device cost time themselves. `service_time` is the device's alone: mean compute of one run.
    """

    depth: int
    concurrency: int | None
    rate: float | None
    count: int
    refused: int
    wall: float
    throughput: float
    latency: Summary
    send_delay: Summary | None
    stages: dict[str, Summary]
    streams: dict[str, Summary]
    busy: dict[str, float]
    load_time: float
    first_inference: float
    timeline: Timeline = field(repr=False)

    @property
    def load(self) -> str:
        """The load in a few words: ``4 callers``, ``100/s``."""
        return load_title(self.concurrency, self.rate)

    @property
    def bound_by(self) -> str:
        """What limits the throughput, in a sentence."""
        if not self.busy:
            return "unknown: no run was timed on the device"
        names = {"h2d": "copying in", "compute": "compute", "d2h": "copying out"}
        stream = max(self.busy, key=self.busy.__getitem__)
        share = self.busy[stream]
        if self.rate is not None and not self.refused and self.throughput > 0.97 * self.rate and share < 0.9:
            return f"the rate of requests; the busiest stream, {names[stream]}, worked {share:.0%} of the time"
        if share >= 0.9:
            return f"{names[stream]}, whose stream worked {share:.0%} of the time"
        return (
            f"the host, or the depth: no stream worked more than {share:.0%} of the time ({names[stream]} did); "
            "more depth, more callers or larger runs may help"
        )


@dataclass(frozen=True)
class Result:
    """Everything measured of one model; times are seconds.

    `device_open` is what opening the device took, before any model. The load time and the first inference of each
    depth are in its levels. `choice` is the recommended depth, where several were measured.
    """

    model: str
    device: str
    loop: str
    instances: int
    device_open: float
    levels: tuple[Level, ...]
    choice: Choice | None

    @property
    def load_time(self) -> float:
        """Opening the model for the first time: later times may profit from what is cached by then."""
        return self.levels[0].load_time

    @property
    def first_inference(self) -> float:
        """The first inference after that."""
        return self.levels[0].first_inference

    @property
    def best(self) -> Level:
        """The level of the recommended depth with the highest throughput."""
        depths = [level for level in self.levels if self.choice is None or level.depth == self.choice.depth]
        return max(depths, key=lambda level: level.throughput)


async def measure(plan: Plan, progress: Progress = lambda what, share: None) -> Result:
    """Measure a model as `plan` says, on the running loop.

    Raises what opening and running it raises, and `AioascendError` where no request was answered.
    """
    levels: list[Level] = []
    started = now()
    # Held open over all depths, so that the load time of each is that of the model alone.
    async with Device(plan.devices) as device:
        device_open = now() - started
        if plan.depths == "auto":
            auto = DepthSearch()
            while (depth := auto.trying) is not None:
                found = await _depth(plan, device.name, depth, progress)
                levels += found
                auto.measured(max(level.throughput for level in found))
            choice = auto.choice
        else:
            for depth in plan.depths:
                levels += await _depth(plan, device.name, depth, progress)
            curve: dict[int, float] = {}
            for level in levels:
                curve[level.depth] = max(level.throughput, curve.get(level.depth, 0.0))
            choice = choose(curve) if len(curve) > 1 and not plan.rates else None
        name = device.name
    loop = type(asyncio.get_running_loop())
    return Result(
        model=Path(plan.model).name,
        device=name,
        loop=loop.__module__.partition(".")[0],
        instances=plan.instances,
        device_open=device_open,
        levels=tuple(levels),
        choice=choice,
    )


async def _depth(plan: Plan, device: str, depth: int, progress: Progress) -> list[Level]:
    """Open the model with this depth and put every load on it."""
    progress(f"depth {depth}: loading", 0.0)
    session = Session(plan.model, devices=device, depth=depth, instances=plan.instances, **plan.options)
    started = now()
    async with session:
        load_time = now() - started
        inputs = plan.inputs(session.inputs)
        started = now()
        await session.infer(inputs)
        first = now() - started

        def call() -> Any:
            return session.infer(inputs)

        levels = []
        for callers, rate in _loads(plan, depth):
            title = f"depth {depth}, {load_title(callers, rate)}"
            loaded = await _load(plan, call, callers, rate, plan.load, title, progress)
            if not loaded.count:
                raise AioascendError(
                    f"{title}: no request was answered ({loaded.refused} refused); "
                    "measure for longer, or at a lower rate"
                )
            short = Load(min(plan.load.duration, _STAGES_S), plan.load.iterations, warmup=0.0, warmup_count=0)
            async with record(session, limit=_MOST_TIMED) as recording:
                await _load(plan, call, callers, rate, short, f"{title}: stages", progress)
            timeline = recording.timeline()
            latency = summarize(loaded.latencies, plan.percentiles)
            assert latency is not None
            levels.append(
                Level(
                    depth=depth,
                    concurrency=callers,
                    rate=rate,
                    count=loaded.count,
                    refused=loaded.refused,
                    wall=loaded.wall,
                    throughput=loaded.throughput,
                    latency=latency,
                    send_delay=summarize(loaded.send_delays, plan.percentiles),
                    stages=timeline.split(plan.percentiles),
                    streams=timeline.streams(plan.percentiles),
                    busy=_busy(timeline, plan.instances),
                    load_time=load_time,
                    first_inference=first,
                    timeline=timeline,
                )
            )
        return levels


def load_title(callers: int | None, rate: float | None) -> str:
    """A load in a few words."""
    if callers is not None:
        return "1 caller" if callers == 1 else f"{callers} callers"
    return f"{rate:g}/s"


def _loads(plan: Plan, depth: int) -> list[tuple[int | None, float | None]]:
    if plan.rates:
        return [(None, rate) for rate in plan.rates]
    return [(callers, None) for callers in plan.concurrency or (depth * plan.instances + 2,)]


async def _load(
    plan: Plan, call: Call, callers: int | None, rate: float | None, load: Load, title: str, progress: Progress
) -> Loaded:
    loaded = Loaded()

    async def show() -> None:
        while True:
            progress(title, min(1.0, loaded.share))
            await asyncio.sleep(_TICK_S)

    shown = asyncio.ensure_future(show())
    try:
        if callers is not None:
            await closed_loop(call, callers, load, loaded)
        else:
            assert rate is not None
            await open_loop(call, rate, load, loaded, distribution=plan.distribution)
    finally:
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)
    return loaded


def _busy(timeline: Timeline, instances: int) -> dict[str, float]:
    """The share of the time in which each stream worked."""
    completed = timeline.completed()
    shares = {}
    for name, field_name in (("h2d", "h2d"), ("compute", "execute"), ("d2h", "d2h")):
        spans = [getattr(one, field_name) for one in completed]
        if len(spans) < 2:
            continue
        # From one end to another: a whole number of periods of a steady flow.
        length = max(span.end for span in spans) - min(span.end for span in spans)
        first = min(spans, key=lambda span: span.end)
        work = sum(span.duration for span in spans) - first.duration
        if length > 0:
            shares[name] = min(1.0, work / length / instances)
    return shares
