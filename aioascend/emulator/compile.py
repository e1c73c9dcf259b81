"""Fixing the dynamic axes of an .onnx: what ATC is to an NPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from . import codes, offline, onnx_wire
from .args import Failure
from .config import Config
from .model import Network, check_tensors, first_lines, open_session, output_tensors
from .offline import Source
from .tensors import BY_ONNX, ElementType, Tensor, from_ort_type

Shapes = Mapping[str, Sequence[int]]


class CompileError(Exception):
    """The model cannot be compiled as asked. `names` are the inputs or outputs concerned."""

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


def quoted(names: Sequence[str]) -> str:
    """Names as messages show them."""
    return ", ".join(repr(name) for name in names)


def compile_model(
    source: Source,
    config: Config,
    shapes: Shapes | None,
    examples: Mapping[str, Any] | None,
    output_shapes: Shapes | None,
    running: Callable[[Any], None],
) -> bytes:
    """The offline model of `source`. `running` is told every ``RunOptions`` used, so that a run can be ended."""
    if source.inputs is not None:
        raise CompileError(f"{source.where} is compiled already")
    graph = read_graph(source)
    try:
        check_tensors(graph.inputs, "inputs")
    except Failure as failure:
        raise CompileError(failure.text, [e.name for e in graph.inputs if e.elem_type not in BY_ONNX]) from None
    inputs = fixed_inputs(graph.inputs, shapes or {})
    feeds = checked_examples(inputs, examples or {})
    session = fixed_session(source, graph, inputs, config)
    outputs = final_outputs(session, inputs, feeds, dict(output_shapes or {}), running)
    return offline.write_offline(
        source, {one.name: one.shape for one in inputs}, {one.name: one.shape for one in outputs}
    )


def read_graph(source: Source) -> onnx_wire.Graph:
    """The graph's inputs and outputs; `Failure` when the file is no .onnx."""
    try:
        return onnx_wire.read(source.data)
    except onnx_wire.WireError as error:
        raise Failure(codes.PARSE_MODEL, f"{source.where} is not an ONNX model, or is damaged: {error}") from None


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


def fixed_session(source: Source, graph: onnx_wire.Graph, inputs: Sequence[Tensor], config: Config) -> Any:
    """An ORT session of the model with its inputs fixed; ORT's refusals become `CompileError`."""
    try:
        return session_of(source, graph, inputs, config)
    except Failure:
        raise
    except Exception as error:
        raise CompileError(f"ONNX Runtime refuses {source.where}: {first_lines(error)}") from None


def session_of(source: Source, graph: onnx_wire.Graph, inputs: Sequence[Tensor], config: Config) -> Any:
    """An ORT session with the inputs' axes fixed in the graph, or left open where only that loads; ORT's errors pass.

    Static shapes also reach branches of an ``If`` that never run and may make no sense there (the speech model
    silero-vad: its 8 kHz branch at the length of a 16 kHz chunk), and ORT then refuses the whole model. The axes are
    final either way: every run binds exactly the shapes of `inputs`.
    """
    pieces = patched(source, graph, inputs)
    try:
        return open_session(source, pieces, config, graph.external_data)
    except Failure:
        raise
    except Exception as refused:
        if len(pieces) == 1 and pieces[0] is source.data:
            raise
        try:
            return open_session(source, [source.data], config, graph.external_data)
        except Exception:
            raise refused from None


def patched(source: Source, graph: onnx_wire.Graph, inputs: Sequence[Tensor]) -> list[memoryview]:
    """The pieces of the file with the final input shapes."""
    declared = {entry.name: entry.shape for entry in graph.inputs}
    changed = {one.name: one.shape for one in inputs if declared[one.name] != one.shape}
    if not changed:
        return [source.data]
    return onnx_wire.with_fixed_inputs(source.data, graph, changed)


def final_outputs(
    session: Any,
    inputs: Sequence[Tensor],
    feeds: Mapping[str, numpy.ndarray[Any, Any]],
    given: dict[str, Sequence[int]],
    running: Callable[[Any], None],
) -> tuple[Tensor, ...]:
    """Every output with its final shape: `given` first, then ORT's shape inference, then runs on example values."""
    entries = session.get_outputs()
    wrong = [entry for entry in entries if from_ort_type(entry.type) is None]
    if wrong:
        told = ", ".join(f"{entry.name!r} is {entry.type}" for entry in wrong)
        raise CompileError(f"outputs must be tensors of numbers, but {told}", [entry.name for entry in wrong])
    names = [entry.name for entry in entries]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise CompileError(f"output_shapes= names {quoted(unknown)}, but the outputs are {quoted(names)}", unknown)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, sizes in given.items():
        try:
            shapes[name] = tuple(int(size) for size in sizes)
        except (TypeError, ValueError):
            raise CompileError(f"output {name!r}: a tuple of sizes was wanted, {sizes!r} was given", [name]) from None
        if any(size < 0 for size in shapes[name]):
            raise CompileError(f"output {name!r}: sizes must be positive, {shapes[name]} was given", [name])
    missing = []
    for entry in entries:
        if entry.name not in shapes:
            if all(isinstance(size, int) for size in entry.shape):
                shapes[entry.name] = tuple(entry.shape)
            else:
                missing.append(entry.name)
    if missing:
        seen = example_runs(session, inputs, feeds, running)
        varying = [name for name in missing if len({run[name] for run in seen}) > 1]
        if varying:
            told = "; ".join(f"{name!r}: {sorted({run[name] for run in seen})}" for name in varying)
            raise CompileError(
                f"the shape of outputs depends on the input's values ({told}), which an offline model cannot have; "
                f"if it is fixed in your use, give output_shapes=",
                varying,
            )
        shapes.update({name: seen[0][name] for name in missing})
    return output_tensors(session, shapes)


def example_runs(
    session: Any,
    inputs: Sequence[Tensor],
    feeds: Mapping[str, numpy.ndarray[Any, Any]],
    running: Callable[[Any], None],
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
    network = Network(session, tuple(inputs), (), 0, "")
    running(network.options)
    binding = session.io_binding()
    for one in inputs:
        address = values[one.name].ctypes.data
        binding.bind_input(one.name, "cpu", 0, one.type.onnx, list(one.shape), address)
    names = [entry.name for entry in session.get_outputs()]
    for name in names:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding, network.options)
    return {name: tuple(value.shape()) for name, value in zip(names, binding.get_outputs(), strict=True)}


def load_network(source: Source, config: Config, running: Callable[[Any], None]) -> Network:
    """Load an offline model or a static .onnx; `Failure` with a loading code and a readable text when it cannot be."""
    graph = read_graph(source)
    check_tensors(graph.inputs, "inputs")
    try:
        inputs = fixed_inputs(graph.inputs, source.inputs or {})
    except CompileError as error:
        raise Failure(codes.GE_SHAPE_INVALID, str(error)) from None
    try:
        session = session_of(source, graph, inputs, config)
    except Failure:
        raise
    except Exception as error:
        code = codes.DESERIALIZE_MODEL if type(error).__name__ == "InvalidProtobuf" else codes.GE_LOAD_MODEL
        raise Failure(code, f"ONNX Runtime refuses {source.where}: {first_lines(error)}") from None
    if source.outputs is not None:
        outputs = output_tensors(session, source.outputs)
    else:
        try:
            outputs = final_outputs(session, inputs, {}, {}, running)
        except CompileError as error:
            raise Failure(codes.GE_INTERNAL_ERROR, str(error)) from None
    return Network(session, inputs, outputs, len(source.data), graph.name)
