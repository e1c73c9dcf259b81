"""Copying between numpy arrays in pieces, so that a long copy can be stopped and never holds the GIL for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CHUNK", "copy_array"]

Array = np.ndarray[Any, np.dtype[Any]]

CHUNK = 4 << 20
"""Bytes copied between two looks at `stop`: about a millisecond."""


def copy_array(dst: Array, src: Array, stop: Callable[[], bool] | None = None) -> bool:
    """Copy `src` (any layout) into `dst` of the same shape and dtype; False if `stop` ended it half-way.

    `numpy.copyto` releases the GIL for the length of a piece (a memoryview assignment of the same speed keeps it).
    """
    if src.nbytes <= CHUNK or src.ndim == 0:
        if stop is not None and stop():
            return False
        if type(src) is np.ndarray and src.dtype is dst.dtype:
            dst[...] = src  # the same for a third of what the call itself costs
        else:
            np.copyto(dst, src, casting="no")
        return True
    axis = next(axis for axis, size in enumerate(src.shape) if size > 1)
    step = max(1, src.shape[axis] * CHUNK // src.nbytes)
    lead: tuple[int | slice, ...] = (0,) * axis
    for start in range(0, src.shape[axis], step):
        part = (*lead, slice(start, start + step))
        if not copy_array(dst[part], src[part], stop):
            return False
    return True
