"""The notations of `aioascend bench`: lists, ranges, depths and trtexec's shapes; all raise `ArgumentTypeError`."""

from __future__ import annotations

import argparse
import math
import re
from typing import Literal

from .arguments import Shape

__all__ = ["counts", "depths", "percentiles", "positive", "positive_count", "rates", "trtexec_shapes", "whole"]

_MOST_LEVELS = 64


def whole(text: str) -> int:
    """A whole number of at least 0."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"wanted a whole number, given {text!r}")
    return int(text)


def positive_count(text: str) -> int:
    """A whole number of at least 1."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"wanted at least 1, given {text}")
    return number


def positive(text: str) -> float:
    """A number greater than 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"wanted a number greater than 0, given {text!r}")
    return number


def counts(text: str) -> tuple[int, ...]:
    """``1,2,4``, or a range with both ends: ``1:8`` by ones, ``1:9:2`` by twos, ``1:32:x2`` doubling."""
    if ":" not in text:
        return _distinct(tuple(positive_count(part) for part in text.split(",")), text)
    first, _, rest = text.partition(":")
    last, _, step = rest.partition(":")
    start, end = positive_count(first), positive_count(last)
    factor = step.startswith("x")
    by = positive_count(step.removeprefix("x")) if step else 1
    if end < start or (factor and by < 2):
        raise argparse.ArgumentTypeError(f"wanted a range such as 1:8, 1:9:2 or 1:32:x2, given {text!r}")
    found = [start]
    while (following := found[-1] * by if factor else found[-1] + by) <= end:
        found.append(following)
        if len(found) > _MOST_LEVELS:
            raise argparse.ArgumentTypeError(f"{text!r} is more than {_MOST_LEVELS} numbers")
    return tuple(found)


def depths(text: str) -> tuple[int, ...] | Literal["auto"]:
    """What `counts` reads, or ``auto``."""
    return "auto" if text == "auto" else counts(text)


def rates(text: str) -> tuple[float, ...]:
    """Numbers greater than 0, with commas between them."""
    return _distinct(tuple(positive(part) for part in text.split(",")), text)


def percentiles(text: str) -> tuple[float, ...]:
    """Percentages above 0 and up to 100, with commas between them."""
    found = tuple(positive(part) for part in text.split(","))
    if max(found) > 100:
        raise argparse.ArgumentTypeError(f"wanted percentages up to 100, given {text!r}")
    return tuple(sorted(_distinct(found, text)))


def trtexec_shapes(text: str) -> list[tuple[str, Shape]]:
    """``x:1x3x224x224,mask:1x16``, as of trtexec's --shapes."""
    found = []
    for part in text.split(","):
        name, colon, sizes = part.rpartition(":")
        if not (name and colon and re.fullmatch(r"[0-9]{1,18}(x[0-9]{1,18})*", sizes)):
            raise argparse.ArgumentTypeError(f"wanted NAME:1x3x224x224, given {part!r}")
        found.append((name, tuple(map(int, sizes.split("x")))))
    return found


def _distinct(numbers: tuple[float, ...] | tuple[int, ...], text: str) -> tuple[int, ...]:
    if len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"a number is given twice: {text!r}")
    return numbers  # type: ignore[return-value]
