"""The final shapes of a model's inputs: what was asked for, checked against what the model says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import onnx_wire
from .tensors import BY_ONNX, Tensor

Shapes = Mapping[str, Sequence[int]]


class CompileError(Exception):
    """The model cannot be compiled as asked.

    `names` are the inputs or outputs concerned; `code` is the one with which a load of the file fails, 0 where it is
    the asking that is wrong.
    """

    def __init__(self, message: str, names: Sequence[str] = (), code: int = 0) -> None:
        super().__init__(message)
        self.names = tuple(names)
        self.code = code


def quoted(names: Sequence[str]) -> str:
    """Names as messages show them."""
    return ", ".join(repr(name) for name in names)


def fixed_inputs(entries: Sequence[onnx_wire.TensorInput], shapes: Shapes) -> tuple[Tensor, ...]:
    """Every input with its final shape."""
    names = [entry.name for entry in entries]
    unknown = [name for name in shapes if name not in names]
    if unknown:
        raise CompileError(f"shapes= names {quoted(unknown)}, but the model's inputs are {quoted(names)}", unknown)
    tensors = []
    open_axes: list[tuple[onnx_wire.TensorInput, list[str]]] = []
    for entry in entries:
        assert entry.elem_type is not None
        given = shapes.get(entry.name)
        if given is not None:
            shape = _given_shape(entry, given)
        elif entry.shape is None:
            open_axes.append((entry, ["all (the model does not even fix their number)"]))
            continue
        else:
            dynamic = [_axis(position, size) for position, size in enumerate(entry.shape) if not isinstance(size, int)]
            if dynamic:
                open_axes.append((entry, dynamic))
                continue
            shape = tuple(size for size in entry.shape if isinstance(size, int))
        tensors.append(Tensor(entry.name, BY_ONNX[entry.elem_type], shape))
    if open_axes:
        raise _dynamic_error(open_axes)
    return tuple(tensors)


def _axis(position: int, size: int | str | None) -> str:
    return f"{position} ({size!r})" if isinstance(size, str) else f"{position}"


def _given_shape(entry: onnx_wire.TensorInput, given: Sequence[int]) -> tuple[int, ...]:
    wanted = describe(entry)
    try:
        shape = tuple(int(size) if int(size) == size else -1 for size in given)
    except (TypeError, ValueError):
        raise CompileError(
            f"input {entry.name!r}: a tuple of sizes was wanted, {given!r} was given", [entry.name]
        ) from None
    if any(size < 0 for size in shape):
        raise CompileError(f"input {entry.name!r}: sizes must be positive, {tuple(given)} was given", [entry.name])
    if entry.shape is None:
        return shape
    if len(shape) != len(entry.shape):
        raise CompileError(
            f"input {entry.name!r} has {len(entry.shape)} axes {wanted}, but {len(shape)} were given: {shape}",
            [entry.name],
        )
    for position, (fixed, size) in enumerate(zip(entry.shape, shape, strict=True)):
        if isinstance(fixed, int) and fixed != size:
            raise CompileError(
                f"input {entry.name!r}: axis {position} is fixed to {fixed} in the model {wanted}, "
                f"but {size} was given: {shape}",
                [entry.name],
            )
    return shape


def describe(entry: onnx_wire.TensorInput) -> str:
    """A shape as messages show it, with ``?`` for an axis without a name."""
    if entry.shape is None:
        return "(unknown)"
    parts = ["?" if size is None else str(size) for size in entry.shape]
    return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"


_SAMPLES = {0: 1, 1: 3, 2: 224, 3: 224}


def _dynamic_error(open_axes: Sequence[tuple[onnx_wire.TensorInput, list[str]]]) -> CompileError:
    told = []
    sample: dict[str, tuple[int, ...]] = {}
    for entry, axes in open_axes:
        told.append(f"{entry.name!r} {describe(entry)}: axes {', '.join(axes)}")
        sizes = entry.shape if entry.shape is not None else (None, 3, None, None)
        sample[entry.name] = tuple(
            size if isinstance(size, int) else (_SAMPLES.get(position, 1) if len(sizes) == 4 else 1)
            for position, size in enumerate(sizes)
        )
    python = ", ".join(f'"{name}": {shape}' for name, shape in sample.items())
    flags = " ".join(f"--shape {name}:{','.join(map(str, shape))}" for name, shape in sample.items())
    return CompileError(
        "the model has dynamic axes that must be fixed: " + "; ".join(told) + f". Give for example "
        f"shapes={{{python}}} (or {flags} on the command line)",
        list(sample),
    )
