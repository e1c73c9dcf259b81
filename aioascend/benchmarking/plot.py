"""Throughput and tail latency against depth, as a picture. Needs the extra `plot` (matplotlib)."""

from __future__ import annotations

import importlib.util
import os

from .measure import Result

__all__ = ["available", "plot"]


def available() -> bool:
    """Whether matplotlib is installed; does not import it."""
    return importlib.util.find_spec("matplotlib") is not None


def plot(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the curve to `path`, in the format that its ending names (png, svg, pdf).

    The x axis is what was varied: depth, else the number of callers or the rate. Raises `ValueError` for an ending that
    matplotlib does not know.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    levels = result.levels
    if len({level.depth for level in levels}) > 1:
        title, xs = "depth", [float(level.depth) for level in levels]
    elif levels[0].rate is not None:
        title, xs = "requests a second", [level.rate or 0.0 for level in levels]
    else:
        title, xs = "callers", [float(level.concurrency or 0) for level in levels]
    percent = max(levels[0].latency.percentiles)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    throughput = figure.add_subplot()
    latency = throughput.twinx()
    first = throughput.plot(xs, [level.throughput for level in levels], "o-", color="tab:blue", label="throughput")
    second = latency.plot(
        xs,
        [level.latency.percentiles[percent] * 1e3 for level in levels],
        "s--",
        color="tab:red",
        label=f"p{percent:g} latency",
    )
    throughput.set_xlabel(title)
    throughput.set_ylabel("infer/s")
    latency.set_ylabel("ms")
    throughput.set_ylim(bottom=0)
    latency.set_ylim(bottom=0)
    if title != "requests a second":
        throughput.set_xticks(sorted(set(xs)))
    curves = [*first, *second]
    if result.choice is not None:
        curves.append(throughput.axvline(result.choice.depth, color="0.7", linestyle=":", label="recommended depth"))
    throughput.legend(handles=curves, loc="lower right")
    throughput.set_title(f"{result.model} on {result.device}")
    figure.savefig(path, dpi=120)
