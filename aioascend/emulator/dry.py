"""Dry runs: a real offline model (`.om`) described by what its file says, with outputs that are made up.

Nothing is computed. The elements of an output are 0, 1, 2, ... 99, 0, 1, ... in order (0, 1, 0, 1 for bool), at every
run the same whatever the inputs are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from .. import om
from . import codes
from .args import Failure
from .config import Config
from .gears import DATA_INPUT, Gear, Gears, Signature
from .model import Computation
from .offline import Source
from .tensors import BY_ACL, ElementType, Tensor

_PERIOD = 100
_ENDED = "its runs were ended"
_AIPP = {"static": 1, "dynamic": 2, "settings": 3}


def open_dry(source: Source, config: Config) -> DryNetwork:
    """Open an offline model without its content; `Failure` when that was not asked for or cannot be."""
    if not (config.dry_run or source.dry_run):
        raise Failure(
            codes.PARSE_MODEL,
            f"{source.where} is an .om file, compiled for an NPU; the emulator runs the .onnx it was made from. "
            "For a dry run, in which nothing is computed and the outputs are made up, set "
            "AIOASCEND_EMULATOR_DRY_RUN=1 or give --dry-run",
        )
    try:
        file = om.read(source.path if source.path is not None else source.data)
    except om.OmError as error:
        raise Failure(error.code, f"{source.where}: {error}") from None
    if file.refusal:
        raise Failure(codes.GE_PARAM_INVALID, f"{source.where}: {file.refusal}")
    if file.encrypted:
        raise Failure(
            codes.GE_LOAD_MODEL, f"{source.where} is encrypted: a dry run cannot read what it takes and gives"
        )
    if om.compare_chips(file.soc_version, config.soc_name) == "different":
        raise Failure(
            codes.SOC_VERSION,
            f"{source.where} was compiled for {file.soc_version}, the emulated device is {config.soc_name}: "
            f"set AIOASCEND_EMULATOR_SOC={file.soc_version}",
        )
    return DryNetwork(file, _signature(file, source.where))


class DryNetwork(Computation):
    """An offline model whose outputs are made up."""

    def __init__(self, file: om.OmFile, signature: Signature) -> None:
        super().__init__(file.name, signature, file.weight_size)
        self._work = file.work_size
        self._terminated = False

    def device_bytes(self) -> tuple[int, int]:
        """(work, weight) bytes, as the file says."""
        return self._work, self.weight_size

    def run(self, addresses: tuple[int, ...]) -> str | None:
        """Make up the outputs at these addresses (inputs, then outputs)."""
        if self._terminated:
            return _ENDED
        signature = self.signature
        outputs, gears = signature.outputs, signature.gears
        inputs = len(signature.inputs)
        if gears is not None:
            gear = gears.at(addresses[inputs - 1])
            if gear is None:
                return f"its {DATA_INPUT} holds no gear of the model: none was set for this dataset"
            outputs = gear.outputs
        for tensor, address in zip(outputs, addresses[inputs:], strict=True):
            _fill(tensor, address)
        return None

    def run_free(self, inputs: Sequence[Tensor], addresses: Sequence[int]) -> list[Any] | str:
        """Made-up outputs for these input shapes.

        Which shapes the outputs would have only a computation can tell. An open axis is taken to be as long as the
        first input's open axis at that place, else 1.
        """
        if self._terminated:
            return _ENDED
        return [_MadeUp(tensor, self._guessed(tensor.shape, inputs)) for tensor in self.signature.outputs]

    def _guessed(self, shape: tuple[int, ...], inputs: Sequence[Tensor]) -> tuple[int, ...]:
        return tuple(size if size >= 0 else self._open_axis(axis, inputs) for axis, size in enumerate(shape))

    def _open_axis(self, axis: int, inputs: Sequence[Tensor]) -> int:
        for declared, given in zip(self.signature.inputs, inputs, strict=True):
            if axis < len(declared.shape) and declared.shape[axis] < 0:
                return given.shape[axis]
        return 1

    def terminate(self) -> None:
        """Make every later run fail; one in progress ends by itself."""
        self._terminated = True

    @property
    def terminated(self) -> bool:
        """Whether it was."""
        return self._terminated


class _MadeUp:
    """An output in memory of its own, as ONNX Runtime would give it."""

    def __init__(self, tensor: Tensor, shape: tuple[int, ...]) -> None:
        self._tensor = Tensor(tensor.name, tensor.type, shape)
        self._memory = ctypes.create_string_buffer(max(1, self._tensor.nbytes))
        _fill(self._tensor, self.data_ptr())

    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self._tensor.shape

    def data_ptr(self) -> int:
        """The address."""
        return ctypes.addressof(self._memory)


def _fill(tensor: Tensor, address: int) -> None:
    import numpy

    if not tensor.nbytes:
        return
    buffer: Any = (ctypes.c_ubyte * tensor.nbytes).from_address(address)
    memory = numpy.frombuffer(buffer, numpy.uint8)
    pattern = _pattern(tensor.type)
    whole = memory[: memory.size // pattern.itemsize * pattern.itemsize].view(pattern.dtype)
    rows = whole.size // _PERIOD
    whole[: rows * _PERIOD].reshape(rows, _PERIOD)[:] = pattern
    rest = whole[rows * _PERIOD :]
    rest[:] = pattern[: rest.size]


def _pattern(kind: ElementType) -> Any:
    """The first hundred elements of an output of this type; bytes for types that numpy has not."""
    import numpy

    numbers = numpy.arange(_PERIOD)
    if kind.name == "bfloat16":
        return (numbers.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)
    if kind.name == "bool":
        return (numbers % 2).astype(numpy.bool_)
    return numbers.astype(kind.numpy or numpy.uint8)


# -- what the file says, in the emulator's own terms ---------------------------------------------------------------


def _signature(file: om.OmFile, where: str) -> Signature:
    inputs, outputs = tuple(map(_tensor, file.inputs)), tuple(map(_tensor, file.outputs))
    if file.gears is None:
        return Signature(inputs, outputs, free=file.dynamic_shape)
    if not inputs or inputs[-1].name != DATA_INPUT:
        raise Failure(codes.MODEL_MISSING_ATTR, f"{where} has gears, but its last input is not {DATA_INPUT}")
    try:
        return Signature(inputs, outputs, _gears(file, file.gears, inputs, outputs))
    except ValueError as error:
        raise Failure(codes.MODEL_MISSING_ATTR, f"{where}: {error}") from None


def _tensor(tensor: om.OmTensor) -> Tensor:
    kind = BY_ACL.get(tensor.acl_dtype) or ElementType(0, tensor.dtype, tensor.acl_dtype, tensor.bits, None)
    shape = tensor.largest if tensor.aipp != "dynamic" else tensor.shape
    return Tensor(
        tensor.name, kind, shape, tensor.acl_format, tensor.nbytes, tensor.shape_v2, _AIPP.get(tensor.aipp, 0)
    )


def _gears(file: om.OmFile, told: om.Gears, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Gears:
    shown = tuple(tensor.shape for tensor in file.inputs[:-1])
    choices = []
    for number, values in enumerate(told.values):
        shapes = _gear_shapes(file.inputs[:-1], told, values)
        given = tuple(_resized(tensor, shape) for tensor, shape in zip(inputs[:-1], shapes, strict=True))
        results = tuple(_resized(tensor, told.output_shape(number, index)) for index, tensor in enumerate(outputs))
        choices.append(Gear(values, given, results))
    return Gears(told.kind, tuple(choices), shown)


def _gear_shapes(
    inputs: Sequence[om.OmTensor], told: om.Gears, values: tuple[int, ...]
) -> list[tuple[int, ...] | None]:
    """The inputs' shapes with one gear, in their own order; None for one that does not change."""
    names = [tensor.name for tensor in inputs]
    order = [name for name in told.order if name in names] if told.kind == "dims" else []
    order += [name for name in names if name not in order]
    left = list(values)
    shapes: dict[str, tuple[int, ...] | None] = dict.fromkeys(names)
    for name in order:
        tensor = inputs[names.index(name)]
        if tensor.aipp == "dynamic" or min(tensor.shape, default=0) >= 0:
            continue
        shape = []
        for size in tensor.shape:
            if size >= 0:
                shape.append(size)
            elif told.kind == "batch":
                shape.append(values[0])
            elif left:
                shape.append(left.pop(0))
            else:
                raise ValueError(f"the gear {values} has fewer sizes than the inputs have open axes")
        shapes[name] = tuple(shape)
    if left and told.kind == "dims":
        raise ValueError(f"the gear {values} has more sizes than the inputs have open axes")
    return [shapes[name] for name in names]


def _resized(tensor: Tensor, shape: tuple[int, ...] | None) -> Tensor:
    return tensor if shape is None else Tensor(tensor.name, tensor.type, shape, tensor.format)
