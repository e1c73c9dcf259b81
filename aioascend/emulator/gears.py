"""Gears: the choices of batch, height and width, or dims that a model was compiled with (reference §11).

A model with gears shows -1 at its open axes and has one more input, ``ascend_mbatch_shape_data``, through which the
device learns the gear of a run: a few int32 values in device memory, read when the run begins.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import onnx_wire
from .shapes import CompileError, describe, quoted
from .tensors import BY_NAME, BY_ONNX, Tensor, from_ort_type

DATA_INPUT = "ascend_mbatch_shape_data"
METADATA_KEY = "aioascend.gears"
KINDS = ("batch", "hw", "dims", "free")
_MOST = {"batch": 128, "hw": 128, "dims": 4096}


@dataclass(frozen=True)
class Gear:
    """One choice: the values that name it, and the shapes that follow."""

    values: tuple[int, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Gears:
    """All choices of a model. `kind` says which ``set_dynamic_*`` chooses; `shown` are input shapes with -1."""

    kind: str
    choices: tuple[Gear, ...]
    shown: tuple[tuple[int, ...], ...]

    def find(self, values: Sequence[int]) -> Gear | None:
        """The gear with these values."""
        wanted = tuple(values)
        for gear in self.choices:
            if gear.values == wanted:
                return gear
        return None

    def largest(self) -> Gear:
        """The gear that takes the most memory."""
        return max(self.choices, key=lambda gear: sum(one.nbytes for one in (*gear.inputs, *gear.outputs)))

    def data_input(self) -> Tensor:
        """The additional input."""
        return Tensor(DATA_INPUT, BY_NAME["int32"], (len(self.choices[0].values),))

    def at(self, address: int) -> Gear | None:
        """The gear whose values stand at a host-visible address."""
        count = len(self.choices[0].values)
        return self.find(tuple((ctypes.c_int32 * count).from_address(address)))


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs as the description functions tell them; with gears, those of the largest.

    `free`: axes are open (-1), every run says its shapes.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    gears: Gears | None = None
    free: bool = False

    @classmethod
    def of(cls, gears: Gears) -> Signature:
        """The signature of a model with gears: each tensor as large as it gets in any gear."""
        inputs = _largest([gear.inputs for gear in gears.choices])
        outputs = _largest([gear.outputs for gear in gears.choices])
        return cls((*inputs, gears.data_input()), outputs, gears)

    def shown(self, index: int) -> tuple[int, ...]:
        """The shape of an input, -1 at open axes."""
        if self.gears is not None and index < len(self.gears.shown):
            return self.gears.shown[index]
        return self.inputs[index].shape


def _largest(choices: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(max(same, key=lambda tensor: tensor.nbytes) for same in zip(*choices, strict=True))


@dataclass(frozen=True)
class Plan:
    """Gears as asked for, before the output shapes are known."""

    kind: str
    shown: dict[str, tuple[int, ...]]
    values: tuple[tuple[int, ...], ...]

    def inputs(self, entries: Sequence[onnx_wire.TensorInput], values: tuple[int, ...]) -> tuple[Tensor, ...]:
        """The inputs of one gear."""
        left = list(values)
        tensors = []
        for entry in entries:
            assert entry.elem_type is not None
            shape = []
            for size in self.shown[entry.name]:
                if size >= 0:
                    shape.append(size)
                else:
                    shape.append(values[0] if self.kind == "batch" else left.pop(0))
            tensors.append(Tensor(entry.name, BY_ONNX[entry.elem_type], tuple(shape)))
        return tuple(tensors)


def plan(
    entries: Sequence[onnx_wire.TensorInput], shapes: Mapping[str, Sequence[int]], asked: Mapping[str, Any]
) -> Plan:
    """Check a description of gears: ``{"batch": [1, 2]}``, ``{"hw": [[h, w], ...]}``, ``{"dims": [[...], ...]}``, or
    ``{"free": True}`` for axes that stay open.

    `shapes` has -1 at the open axes; an input that is not in it is open where the model is. Values of ``dims`` are
    for the open axes of all inputs in order.
    """
    if len(asked) != 1 or next(iter(asked)) not in KINDS:
        raise CompileError(f"gears= takes one of batch, hw, dims and free, {dict(asked)!r} was given")
    kind, choices = next(iter(asked.items()))
    shown = {entry.name: _shown(entry, shapes) for entry in entries}
    open_axes = [(name, axis) for name, shape in shown.items() for axis, size in enumerate(shape) if size < 0]
    if not open_axes:
        raise CompileError("gears= needs inputs with open axes (-1 in shapes=), and this model has none")
    if kind == "free":
        return Plan(kind, shown, ())
    if kind == "batch" and any(axis != 0 for _, axis in open_axes):
        names = sorted({name for name, axis in open_axes if axis != 0})
        raise CompileError(f"with batch gears only the first axis may be open, not so {quoted(names)}", names)
    if kind == "hw" and (len(open_axes) != 2 or open_axes[0][0] != open_axes[1][0]):
        raise CompileError(f"with hw gears two axes of one input must be open, {len(open_axes)} are")
    length = {"batch": 1, "hw": 2, "dims": len(open_axes)}[kind]
    try:
        values = tuple(
            tuple(int(one) for one in (choice if isinstance(choice, Sequence) else [choice])) for choice in choices
        )
    except (TypeError, ValueError):
        raise CompileError(f"gears={{{kind!r}: ...}}: a list of gears was wanted, {choices!r} was given") from None
    if not 0 < len(values) <= _MOST[kind] or len(set(values)) != len(values):
        raise CompileError(f"1 to {_MOST[kind]} different gears were wanted, {len(values)} were given")
    for one in values:
        if len(one) != length or any(size <= 0 for size in one):
            raise CompileError(f"a {kind} gear has {length} positive sizes, {one} was given")
    return Plan(kind, shown, values)


def _shown(entry: onnx_wire.TensorInput, shapes: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    given = shapes.get(entry.name)
    if given is None:
        if entry.shape is None:
            raise CompileError(f"input {entry.name!r}: the model does not say how many axes it has", [entry.name])
        return tuple(size if isinstance(size, int) else -1 for size in entry.shape)
    shape = tuple(int(size) for size in given)
    if entry.shape is not None and (
        len(shape) != len(entry.shape)
        or any(isinstance(fixed, int) and size not in (fixed,) for fixed, size in zip(entry.shape, shape, strict=True))
    ):
        raise CompileError(f"input {entry.name!r} is {describe(entry)} in the model, {shape} was given", [entry.name])
    return shape


def free_signature(shown: Mapping[str, tuple[int, ...]], graph: onnx_wire.Graph, session: Any) -> Signature:
    """The signature of a model whose axes stay open."""
    types = {entry.name: BY_ONNX[entry.elem_type or 0] for entry in graph.inputs}
    inputs = tuple(Tensor(entry.name, types[entry.name], tuple(shown[entry.name])) for entry in graph.inputs)
    outputs = []
    for entry in session.get_outputs():
        kind = from_ort_type(entry.type)
        if kind is None:
            raise CompileError(f"outputs must be tensors of numbers, but {entry.name!r} is {entry.type}", [entry.name])
        outputs.append(Tensor(entry.name, kind, tuple(size if isinstance(size, int) else -1 for size in entry.shape)))
    return Signature(inputs, tuple(outputs), free=True)


def named_shapes(
    entries: Sequence[onnx_wire.TensorInput], inputs: Sequence[Tensor], outputs: Sequence[Any]
) -> dict[str, tuple[int, ...]] | None:
    """Output shapes of a gear where every open axis of an output has the name of an input's axis; else None."""
    sizes: dict[str, set[int]] = {}
    for entry, tensor in zip(entries, inputs, strict=True):
        for name, size in zip(entry.shape or (), tensor.shape, strict=False):
            if isinstance(name, str):
                sizes.setdefault(name, set()).add(size)
    found = {}
    for output in outputs:
        shape = []
        for size in output.shape:
            if isinstance(size, int):
                shape.append(size)
            elif isinstance(size, str) and size.isidentifier() and len(sizes.get(size, ())) == 1:
                shape.append(next(iter(sizes[size])))
            else:
                return None
        found[output.name] = tuple(shape)
    return found
