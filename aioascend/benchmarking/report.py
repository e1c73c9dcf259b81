"""A result as text, as data for JSON, and as CSV.

Names are those of the tools that Ascend and TensorRT users know where the meaning is theirs: `Throughput`, `Latency`,
`percentile(99%)`, `H2D_latency`, `NPU_compute_time`, `D2H_latency` of ais_bench and trtexec, the columns of
perf_analyzer. Times are milliseconds; in CSV microseconds, as there.
"""

from __future__ import annotations

import csv
import io
from typing import Any

from ..telemetry import Summary
from ..telemetry.timeline import STAGES
from .measure import Level, Result

__all__ = ["as_csv", "as_data", "as_text"]

_STAGE_TITLES = {
    "queue": "Queue",
    "copy_in": "Copy in",
    "compute": "Compute",
    "copy_out": "Copy out",
    "wake_up": "Wake-up",
    "total": "Total",
}
_STREAMS = {"h2d": "H2D_latency", "compute": "NPU_compute_time", "d2h": "D2H_latency"}


def as_text(result: Result, *, batch: int = 1) -> str:
    """The result for people: base figures, a row for each level, and the summary of the best."""
    best = result.best
    lines = [
        f"{result.model} on {result.device}, {result.loop}, {_counted(result.instances, 'instance')}",
        f"Device open: {_ms(result.device_open)} ms",
        f"Load: {_ms(result.load_time)} ms",
        f"First inference: {_ms(result.first_inference)} ms",
        f"Throughput: {best.throughput:.1f} infer/s"
        + (f", {best.throughput * batch:.1f} samples/s at {batch} a run" if batch > 1 else ""),
        "",
        _levels(result),
    ]
    if result.choice is not None:
        lines += ["", f"Recommended: depth {result.choice.depth}, because {result.choice.reason}."]
    lines += [f"Bound by: {best.bound_by}.", "", *_summary(best, batch)]
    return "\n".join(lines)


def _summary(level: Level, batch: int) -> list[str]:
    lines = [
        f"=== Performance summary: depth {level.depth}, {level.load} ===",
        f"Count: {level.count}" + (f", refused: {level.refused}" if level.refused else ""),
        f"Total Host Walltime: {level.wall:.3f} s",
        f"Latency (ms): {_of(level.latency)}",
    ]
    if level.send_delay is not None:
        lines.append(f"Send delay, part of latency (ms): {_of(level.send_delay)}")
    lines += [f"{_STAGE_TITLES[name]} (ms): {_of(level.stages[name])}" for name in STAGES if name in level.stages]
    lines += [f"{title} (ms): {_of(level.streams[name])}" for name, title in _STREAMS.items() if name in level.streams]
    device_only = _device_only(level, batch)
    if device_only is not None:
        mean = _ms(level.streams["compute"].mean)
        lines.append(f"throughput 1000*batchsize({batch})/NPU_compute_time.mean({mean}): {device_only:.1f}")
    if level.stages:
        stages = level.stages["total"].count
        error = max(level.timeline.clock_error.values(), default=0.0)
        lines.append(
            f"Stages are of {stages} further requests, timed by events; "
            f"device and host clocks agree within {error * 1e6:.0f} us."
        )
    return lines


def _levels(result: Result) -> str:
    percents = sorted(result.levels[0].latency.percentiles)
    heading = [
        "depth",
        "load",
        "infer/s",
        *(f"p{percent:g}" for percent in percents),
        *(_STAGE_TITLES[name].lower() for name in STAGES),
    ]
    rows = [
        [
            str(level.depth),
            level.load,
            f"{level.throughput:.1f}",
            *(_ms(level.latency.percentiles[percent]) for percent in percents),
            *(_ms(level.stages[name].mean) if name in level.stages else "-" for name in STAGES),
        ]
        for level in result.levels
    ]
    widths = [max(len(row[column]) for row in (heading, *rows)) for column in range(len(heading))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (heading, *rows)]
    return "\n".join([*lines, "(latency percentiles and mean stages in ms)"])


def as_data(result: Result, *, batch: int = 1) -> dict[str, Any]:
    """The result as JSON takes it; times in milliseconds."""
    return {
        "model": result.model,
        "device": result.device,
        "loop": result.loop,
        "streams": result.instances,
        "batchsize": batch,
        "device_open": result.device_open * 1e3,
        "load_time": result.load_time * 1e3,
        "first_inference": result.first_inference * 1e3,
        "throughput": result.best.throughput,
        "recommended": None
        if result.choice is None
        else {"depth": result.choice.depth, "reason": result.choice.reason},
        "levels": [_level_data(level, batch) for level in result.levels],
    }


def _level_data(level: Level, batch: int) -> dict[str, Any]:
    data: dict[str, Any] = {
        "depth": level.depth,
        "concurrency": level.concurrency,
        "rate": level.rate,
        "count": level.count,
        "refused": level.refused,
        "total_host_walltime": level.wall * 1e3,
        "throughput": level.throughput,
        "throughput_samples": level.throughput * batch,
        "throughput_device_only": _device_only(level, batch),
        "load_time": level.load_time * 1e3,
        "first_inference": level.first_inference * 1e3,
        "latency": _data_of(level.latency),
        "send_delay": _data_of(level.send_delay),
        "bound_by": level.bound_by,
        "busy": level.busy,
        "stages": {name: _data_of(summary) for name, summary in level.stages.items()},
    }
    for name, title in _STREAMS.items():
        data[title] = _data_of(level.streams.get(name))
    return data


def as_csv(result: Result) -> str:
    """One line for each level, with perf_analyzer's columns where they match; times in microseconds."""
    percents = sorted(result.levels[0].latency.percentiles)
    columns = [
        "Depth",
        "Concurrency",
        "Request Rate",
        "Inferences/Second",
        "Server Queue",
        "Server Compute Input",
        "Server Compute Infer",
        "Server Compute Output",
        "Client Recv",
        *(f"p{percent:g} latency" for percent in percents),
        "Request Count",
        "Refused",
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for level in result.levels:
        stages = [round(level.stages[name].mean * 1e6, 1) if name in level.stages else "" for name in STAGES]
        writer.writerow(
            [
                level.depth,
                "" if level.concurrency is None else level.concurrency,
                "" if level.rate is None else f"{level.rate:g}",
                round(level.throughput, 3),
                *stages,
                *(round(level.latency.percentiles[percent] * 1e6, 1) for percent in percents),
                level.count,
                level.refused,
            ]
        )
    return text.getvalue()


def _device_only(level: Level, batch: int) -> float | None:
    compute = level.streams.get("compute")
    return batch / compute.mean if compute is not None and compute.mean > 0 else None


def _of(summary: Summary) -> str:
    percentiles = "".join(
        f", percentile({percent:g}%) = {_ms(value)}"
        for percent, value in sorted(summary.percentiles.items())
        if percent != 50
    )
    return (
        f"min = {_ms(summary.min)}, max = {_ms(summary.max)}, mean = {_ms(summary.mean)}, "
        f"median = {_ms(summary.median)}{percentiles}"
    )


def _data_of(summary: Summary | None) -> dict[str, float] | None:
    if summary is None:
        return None
    return {
        "count": summary.count,
        "min": summary.min * 1e3,
        "max": summary.max * 1e3,
        "mean": summary.mean * 1e3,
        "median": summary.median * 1e3,
        **{f"percentile({percent:g}%)": value * 1e3 for percent, value in sorted(summary.percentiles.items())},
    }


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
