"""Looking into an offline model without a device: `aioascend.inspect`."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..driver.codes import describe
from ..driver.constants import numpy_dtype
from ..errors import InvalidInput, ModelLoadError
from ..om import Advice, Gears, OmError, OmFile, OmTensor, advice, read
from .signature import TensorSpec

__all__ = ["ModelFile", "inspect"]


@dataclass(frozen=True)
class ModelFile:
    """An offline model that was looked into: `om` has all that was found, the rest is what is asked most.

    `path` is the file's, or how messages call a model given as bytes.
    """

    path: str
    om: OmFile

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every input, -1 at axes that are open or chosen by gears.

        Raises `ModelLoadError` for an element type that numpy has not; `om.inputs` shows that too.
        """
        return tuple(self._spec("input", tensor) for tensor in self.om.inputs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every output; raises what `inputs` raises."""
        return tuple(self._spec("output", tensor) for tensor in self.om.outputs)

    @property
    def soc_version(self) -> str:
        """The chip it was compiled for; empty where the file does not say."""
        return self.om.soc_version

    @property
    def gears(self) -> Gears | None:
        """The batches, picture sizes or shapes it was compiled for; None for one shape."""
        return self.om.gears

    @property
    def work_size(self) -> int:
        """Device memory of each loaded instance for a run, in bytes."""
        return self.om.work_size

    @property
    def weight_size(self) -> int:
        """Device memory for the weights, in bytes."""
        return self.om.weight_size

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What is worth looking at: load time, gears, alignment, formats."""
        return advice(self.om)

    def _spec(self, side: str, tensor: OmTensor) -> TensorSpec:
        try:
            return TensorSpec(tensor.name, numpy_dtype(tensor.acl_dtype), tensor.shape)
        except ValueError as error:
            raise ModelLoadError(f"{self.path}: {side} {tensor.name!r} is {tensor.dtype}: {error}") from None


def inspect(model: str | os.PathLike[str] | bytes | bytearray | memoryview) -> ModelFile:
    """Look into an offline model (`.om`), a path or bytes, without a device and without reading its weights.

    Raises `ModelLoadError`, one line that says what is wrong and at which byte, for what cannot be read, is no offline
    model, or is damaged or cut short.
    """
    if isinstance(model, (bytes, bytearray, memoryview)):
        path, shown = None, f"<{memoryview(model).nbytes} bytes>"
    else:
        path = shown = _path(model)
    try:
        return ModelFile(shown, read(model))
    except OmError as error:
        name = describe(error.code).name
        raise ModelLoadError(f"{shown}: {error}", path=path, code=error.code, name=name) from None


def _path(model: str | os.PathLike[str]) -> str:
    try:
        path = os.fspath(model)
    except TypeError:
        raise InvalidInput(f"model: wanted a path or bytes, given {type(model).__name__}") from None
    if not isinstance(path, str):
        raise InvalidInput(f"model: wanted a path as text, given {type(path).__name__}")
    return path
