"""Checking what a caller gives against a model's signature, before anything is queued.

Nothing is cast: name, dtype and shape must fit (equal byte counts prove nothing). The one exception is a Python number
for a 0-d input, which has no dtype of its own and takes the input's.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InvalidInput
from .outputs import NamedOutputs
from .signature import TensorSpec

__all__ = ["Resident", "check_inputs"]

Array = np.ndarray[Any, np.dtype[Any]]


class Resident(ABC):
    """What lies on a device and may be given in the place of an array of its dtype and shape."""

    __slots__ = ()

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of its elements."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Its shape."""


def check_inputs(given: Any, specs: tuple[TensorSpec, ...], index: dict[str, int]) -> list[Array | Resident]:
    """The arrays of `given` in the model's order, and what stands for them on a device.

    `given` is one array (for a model of one input), a list, a tuple or the outputs of another model in the model's
    order, or a mapping of names to arrays. Arrays of any layout are taken as they are and are not copied. Raises
    `InvalidInput`, which names the input, what was wanted and what was given.
    """
    if type(given) is np.ndarray:  # the usual case first: nothing to convert, and no subclass to look into
        if len(specs) == 1 and given.dtype == specs[0].dtype and given.shape == specs[0].shape:
            return [given]
        values: list[Any] = [given]
    elif isinstance(given, np.ndarray):
        values = [given]
    elif isinstance(given, Mapping):
        values = _by_name(given, specs, index)
    elif isinstance(given, (list, tuple, NamedOutputs)):
        values = list(given)
    else:
        values = [given]
    if len(values) != len(specs):
        raise InvalidInput(_count_message(given, len(values), specs))
    return [_check(value, spec) for value, spec in zip(values, specs, strict=True)]


def _by_name(given: Mapping[Any, Any], specs: tuple[TensorSpec, ...], index: dict[str, int]) -> list[Any]:
    slots: dict[int, Any] = {}
    for name, value in given.items():
        position = index.get(name) if isinstance(name, str) else None
        if position is None:
            raise InvalidInput(f"no input is named {name!r}; wanted {_list(specs)}")
        if position in slots:
            raise InvalidInput(f"input {specs[position].name!r} is given twice, the second time as {name!r}")
        slots[position] = value
    missing = [spec.name for position, spec in enumerate(specs) if position not in slots]
    if missing:
        raise InvalidInput(
            f"missing input{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}; wanted {_list(specs)}"
        )
    return [slots[position] for position in range(len(specs))]


def _check(value: Any, spec: TensorSpec) -> Array | Resident:
    array = value if isinstance(value, (np.ndarray, Resident)) else _as_array(value, spec)
    if array.dtype != spec.dtype or array.shape != spec.shape:
        raise InvalidInput(_mismatch(array, spec))
    if isinstance(array, _masked()):
        raise InvalidInput(f"input {spec.name!r}: a masked array was given, whose mask would be lost; fill it first")
    return array


def _masked() -> type[Any] | tuple[()]:
    # Whoever has one has imported it. numpy 2 imports it when it is named, in some 10 ms of a caller's loop.
    module = sys.modules.get("numpy.ma")
    return getattr(module, "MaskedArray", ())  # half-way through its import it has none


def _as_array(value: Any, spec: TensorSpec) -> Array:
    try:
        if not spec.shape and isinstance(value, (bool, int, float)):
            return _number(value, spec)
        return np.asarray(value)
    except InvalidInput:
        raise
    except Exception as error:  # whatever a foreign __array__ raises: bad input never leaves as a foreign exception
        raise InvalidInput(
            f"input {spec.name!r}: wanted {_wanted(spec)}; a {type(value).__name__} was given that numpy "
            f"cannot take as an array ({type(error).__name__}: {error})"
        ) from None


def _number(value: bool | float, spec: TensorSpec) -> Array:
    kinds = "b" if isinstance(value, bool) else "iuf" if isinstance(value, int) else "f"
    if spec.dtype.kind not in kinds and spec.dtype.name != "bfloat16":
        return np.asarray(value)  # the dtypes differ in kind: let the comparison say so
    return np.asarray(value, dtype=spec.dtype)


def _wanted(spec: TensorSpec) -> str:
    return f"{spec.dtype} of shape {spec.shape}"


def _mismatch(array: Array | Resident, spec: TensorSpec) -> str:
    dtype = array.dtype if array.dtype.isnative else f"{array.dtype.name} in foreign byte order ({array.dtype.str})"
    text = f"input {spec.name!r}: wanted {_wanted(spec)}, given {dtype} of shape {array.shape}"
    if isinstance(array, Resident):
        return text
    if array.dtype != spec.dtype and array.shape == spec.shape and array.dtype.kind in "biufc":
        return f"{text}; convert it with .astype(numpy.{spec.dtype.name}) if no information is lost"
    if array.dtype == spec.dtype and array.size and array.size * spec.dtype.itemsize == spec.nbytes:
        return f"{text}; the element counts agree but the axes do not: transpose or reshape it"
    return text


def _count_message(given: Any, count: int, specs: tuple[TensorSpec, ...]) -> str:
    text = f"wanted {len(specs)} input{'s' * (len(specs) != 1)} ({_list(specs)}), given {count}"
    if isinstance(given, (list, tuple)) and len(specs) == 1:
        return f"{text}: a list or tuple is one array per input; make nested numbers an array with numpy.asarray"
    return text


def _list(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(str(spec) for spec in specs) or "none"
