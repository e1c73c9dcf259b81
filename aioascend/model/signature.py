"""What a model takes and gives: names, dtypes and shapes of its tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..driver import Driver
from ..driver.constants import numpy_dtype
from ..errors import ModelLoadError

__all__ = ["Signature", "TensorSpec", "read_signature"]


@dataclass(frozen=True)
class TensorSpec:
    """Name, numpy dtype and shape of one input or output; a 0-d tensor has the shape ``()``."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor without padding."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Signature:
    """The tensors of a loaded model, with the bytes that the driver wants for each."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_nbytes: tuple[int, ...]
    output_nbytes: tuple[int, ...]
    synthetic: bool = False
    """Whether the outputs are made up, in a dry run on the emulator."""

    def input_index(self) -> dict[str, int]:
        """Index of every input by name."""
        return index_by_name(self.inputs)

    def output_index(self) -> dict[str, int]:
        """Index of every output by name, and by the tensor's own name where that is unambiguous."""
        return index_by_name(self.outputs)


def index_by_name(specs: tuple[TensorSpec, ...]) -> dict[str, int]:
    """Map names to indices.

    An `.om` names an output ``node:index:tensor``; the part behind the second colon finds it too, unless two outputs
    share it or it is another's full name.
    """
    exact = {spec.name: index for index, spec in enumerate(specs)}
    short: dict[str, int | None] = {}
    for index, spec in enumerate(specs):
        parts = spec.name.split(":", 2)
        if len(parts) == 3 and parts[1].isdigit() and parts[2]:
            short[parts[2]] = None if parts[2] in short else index
    return {**{name: index for name, index in short.items() if index is not None}, **exact}


def read_signature(driver: Driver, desc: int, model_name: str) -> Signature:
    """Read the tensors of a model description; raises `ModelLoadError` for one that numpy cannot hold.

    Open axes are given as -1; the caller decides what becomes of them.
    """
    inputs, input_nbytes = _read(driver, desc, model_name, "input")
    outputs, output_nbytes = _read(driver, desc, model_name, "output")
    return Signature(inputs, outputs, input_nbytes, output_nbytes)


def _read(driver: Driver, desc: int, model_name: str, side: str) -> tuple[tuple[TensorSpec, ...], tuple[int, ...]]:
    is_input = side == "input"
    specs: list[TensorSpec] = []
    sizes: list[int] = []
    for index in range(driver.num_inputs(desc) if is_input else driver.num_outputs(desc)):
        name = driver.input_name(desc, index) if is_input else driver.output_name(desc, index)
        dims = driver.input_dims(desc, index) if is_input else driver.output_dims(desc, index)
        number = driver.input_dtype(desc, index) if is_input else driver.output_dtype(desc, index)
        nbytes = driver.input_nbytes(desc, index) if is_input else driver.output_nbytes(desc, index)
        try:
            dtype = numpy_dtype(number)
        except ValueError as error:
            raise ModelLoadError(f"{model_name}: {side} {name!r} cannot be used: {error}") from None
        spec = TensorSpec(name, dtype, tuple(dims["dims"][: dims["dimCount"]]))
        if min(spec.shape, default=0) >= 0 and spec.nbytes > nbytes:
            raise ModelLoadError(
                f"{model_name}: {side} {spec} needs {spec.nbytes} bytes, but the driver reports {nbytes}: "
                "its element type is packed or the file is damaged"
            )
        if any(other.name == name for other in specs):
            raise ModelLoadError(f"{model_name}: two {side}s are named {name!r}, so that neither can be told apart")
        specs.append(spec)
        sizes.append(nbytes)
    return tuple(specs), tuple(sizes)
