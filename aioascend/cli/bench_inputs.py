"""What `aioascend bench` runs a model on: zeros, random numbers, or files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import aioascend

from .run import check_files, read_inputs

__all__ = ["make_inputs"]

Arrays = dict[str, npt.NDArray[Any]]


def make_inputs(
    texts: Sequence[str], examples: Mapping[str, Any]
) -> Callable[[Sequence[aioascend.TensorSpec]], Arrays]:
    """The inputs for what a model takes; `examples` are kept where numbers are made up.

    Random numbers are spread evenly over 0 to 1; those of whole-number and bool inputs are 0 or 1. Raises `UsageError`
    at once for a file that there is not.
    """
    if texts in ([], ["zero"]):
        return lambda specs: {spec.name: _example(spec, examples, _zeros) for spec in specs}
    if texts == ["random"]:
        dice = np.random.default_rng(0)
        return lambda specs: {spec.name: _example(spec, examples, lambda one: _random(one, dice)) for spec in specs}
    check_files(texts)
    return lambda specs: read_inputs(texts, specs)


def _example(
    spec: aioascend.TensorSpec,
    examples: Mapping[str, Any],
    make: Callable[[aioascend.TensorSpec], npt.NDArray[Any]],
) -> npt.NDArray[Any]:
    if spec.name in examples:
        return np.asarray(examples[spec.name], spec.dtype).reshape(spec.shape)
    return make(spec)


def _zeros(spec: aioascend.TensorSpec) -> npt.NDArray[Any]:
    return np.zeros(spec.shape, spec.dtype)


def _random(spec: aioascend.TensorSpec, dice: np.random.Generator) -> npt.NDArray[Any]:
    if spec.dtype.kind in "iub":
        return dice.integers(0, 2, spec.shape).astype(spec.dtype)
    return dice.random(spec.shape).astype(spec.dtype)
