"""Runs on example values, for output shapes that inference cannot find."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from .model import first_lines, onnxruntime
from .shapes import CompileError, quoted
from .tensors import ElementType, Tensor


def checked_examples(inputs: Sequence[Tensor], examples: Mapping[str, Any]) -> dict[str, numpy.ndarray[Any, Any]]:
    """The caller's example values as C-contiguous arrays of the inputs' types."""
    by_name = {one.name: one for one in inputs}
    unknown = [name for name in examples if name not in by_name]
    if unknown:
        raise CompileError(
            f"examples= names {quoted(unknown)}, but the model's inputs are {quoted(list(by_name))}", unknown
        )
    feeds = {}
    for name, value in examples.items():
        tensor = by_name[name]
        given = _as_example(tensor, value)
        if given.shape != tensor.shape:
            raise CompileError(
                f"examples[{name!r}]: the shape {tensor.shape} was wanted, {given.shape} was given", [name]
            )
        feeds[name] = numpy.ascontiguousarray(given).reshape(tensor.shape)
    return feeds


def _as_example(tensor: Tensor, value: Any) -> numpy.ndarray[Any, Any]:
    wanted = numpy_dtype(tensor.type)
    bfloat16 = tensor.type.name == "bfloat16"
    told = "bfloat16" if bfloat16 else str(wanted)
    given = numpy.asarray(value)
    if bfloat16 and given.dtype.name == "bfloat16":
        return given.view(numpy.uint16)
    if given.dtype == wanted:
        return given
    # a plain Python number or list has no dtype of its own: take it where no digits get lost
    plain = not isinstance(value, (numpy.ndarray, numpy.generic))
    fitting = given.dtype.kind in "biu" or (given.dtype.kind == "f" and (wanted.kind in "fc" or bfloat16))
    if not plain or not fitting:
        raise CompileError(f"examples[{tensor.name!r}]: {told} was wanted, {given.dtype} was given", [tensor.name])
    try:
        if bfloat16:
            bits = numpy.asarray(value, numpy.float32).view(numpy.uint32)
            return numpy.asarray(bits >> 16).astype(numpy.uint16)
        return numpy.asarray(value, dtype=wanted)
    except (TypeError, ValueError, OverflowError) as error:
        raise CompileError(f"examples[{tensor.name!r}] cannot become {told}: {error}", [tensor.name]) from None


def numpy_dtype(kind: ElementType) -> numpy.dtype[Any]:
    """The dtype that holds such elements; unsigned integers of the right size where numpy has none."""
    if kind.numpy is not None:
        return numpy.dtype(kind.numpy)
    return numpy.dtype(numpy.uint16 if kind.bits == 16 else numpy.uint8)


def example_runs(
    session: Any,
    inputs: Sequence[Tensor],
    feeds: Mapping[str, numpy.ndarray[Any, Any]],
    running: Callable[[Any], None],
    refused: str | None = None,
) -> list[dict[str, tuple[int, ...]]]:
    """Output shapes of the runs that succeeded: zeros, ones, one seeded random draw for the inputs not in `feeds`."""
    free = [one for one in inputs if one.name not in feeds]
    results = []
    reasons: list[str] = []
    for way in ("zeros", "ones", "random") if free else ("given",):
        values = {**feeds, **{one.name: example_value(one, way) for one in free}}
        try:
            results.append(shapes_of_run(session, inputs, values, running))
        except Exception as error:
            reasons.append(first_lines(error))
    if results:
        return results
    suspects = _suspects(free, reasons)
    likely = f"input {quoted(suspects)} probably needs" if suspects else "the model may need"
    names = suspects or [one.name for one in inputs]
    if refused is not None:
        raise CompileError(
            f"ONNX Runtime refuses the model with the shapes { ({one.name: one.shape for one in inputs}) }: {refused}. "
            f"Runs on made-up values failed too ({reasons[0]}); if the shapes are right, {likely} "
            f"examples={{{quoted(names[:1])}: ...}}",
            names,
        )
    raise CompileError(
        f"the shapes of the outputs can be found only by a run, and every run on made-up values failed: {likely} "
        f"examples={{{quoted(names[:1])}: ...}}, or give output_shapes={{...}}. ONNX Runtime said: {reasons[0]}",
        names,
    )


def _suspects(free: Sequence[Tensor], reasons: Sequence[str]) -> list[str]:
    named = [one.name for one in free if any(re.search(rf"\b{re.escape(one.name)}\b", text) for text in reasons)]
    # indices, lengths and rates are integers; zeros, ones and noise rarely suit them
    return named or [one.name for one in free if one.type.name.startswith(("int", "uint"))]


def example_value(tensor: Tensor, way: str) -> numpy.ndarray[Any, Any]:
    """An array of zeros, ones or seeded random numbers; integers from 0 to 9."""
    dtype = numpy_dtype(tensor.type)
    if way == "zeros":
        return numpy.zeros(tensor.shape, dtype)
    if tensor.type.numpy is None:
        # 1.0 in bfloat16; any pattern does for the rest
        return numpy.full(tensor.shape, 0x3F80 if tensor.type.name == "bfloat16" else 1, dtype)
    if way == "ones":
        return numpy.ones(tensor.shape, dtype)
    generator = numpy.random.default_rng(20240229)
    if dtype.kind in "fc":
        return numpy.asarray(generator.standard_normal(tensor.shape)).astype(dtype)
    return numpy.asarray(generator.integers(0, 2 if dtype.kind == "b" else 10, tensor.shape)).astype(dtype)


def shapes_of_run(
    session: Any,
    inputs: Sequence[Tensor],
    values: Mapping[str, numpy.ndarray[Any, Any]],
    running: Callable[[Any], None],
) -> dict[str, tuple[int, ...]]:
    """One run through an IO binding (which also takes bfloat16); the shapes that came out."""
    options = onnxruntime().RunOptions()
    running(options)
    binding = session.io_binding()
    for one in inputs:
        address = values[one.name].ctypes.data
        binding.bind_input(one.name, "cpu", 0, one.type.onnx, list(one.shape), address)
    names = [entry.name for entry in session.get_outputs()]
    for name in names:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding, options)
    return {name: tuple(value.shape()) for name, value in zip(names, binding.get_outputs(), strict=True)}
