"""Throughput and tail latency against depth, as a picture. Needs the extra `plot` (matplotlib)."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from .measure import Level, Result

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
    percent = max(levels[0].latency.percentiles)
    title, groups = curves(result)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    throughput = figure.add_subplot()
    latency = throughput.twinx()
    lines: list[Any] = []
    for index, (name, points) in enumerate(groups.items()):
        xs = [x for x, _ in points]
        strength = 1 - 0.7 * index / len(groups)
        lines += throughput.plot(
            xs,
            [level.throughput for _, level in points],
            "o-",
            color="tab:blue",
            alpha=strength,
            label=f"throughput{name}",
        )
        lines += latency.plot(
            xs,
            [level.latency.percentiles[percent] * 1e3 for _, level in points],
            "s--",
            color="tab:red",
            alpha=strength,
            label=f"p{percent:g} latency{name}",
        )
    throughput.set_xlabel(title)
    throughput.set_ylabel("infer/s")
    latency.set_ylabel("ms")
    throughput.set_ylim(bottom=0)
    latency.set_ylim(bottom=0)
    if title != "requests a second":
        throughput.set_xticks(sorted({x for points in groups.values() for x, _ in points}))
    if result.choice is not None:
        lines.append(throughput.axvline(result.choice.depth, color="0.7", linestyle=":", label="recommended depth"))
    throughput.legend(handles=lines, loc="lower right")
    throughput.set_title(f"{result.model} on {result.device}")
    figure.savefig(path, dpi=120)


def curves(result: Result) -> tuple[str, dict[str, list[tuple[float, Level]]]]:
    """What was varied, and the points of a curve for each thing that was varied besides.

    Over depth, where there are several, with a curve for each number of callers or rate that was asked for.
    """
    levels = result.levels
    depths = {level.depth for level in levels}
    several = len(levels) > len(depths)
    if len(depths) == 1:
        if levels[0].rate is not None:
            return "requests a second", {"": [(level.rate or 0.0, level) for level in levels]}
        return "callers", {"": [(float(level.concurrency or 0), level) for level in levels]}
    groups: dict[str, list[tuple[float, Level]]] = {}
    for level in levels:
        groups.setdefault(f", {level.load}" if several else "", []).append((float(level.depth), level))
    return "depth", groups
