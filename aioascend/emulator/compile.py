"""Fixing the dynamic axes of an .onnx: what ATC is to an NPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from . import codes, offline, onnx_wire
from .args import Failure
from .config import Config
from .dry import open_dry
from .examples import checked_examples, example_runs
from .gears import METADATA_KEY, Gear, Gears, Plan, Signature, free_signature, named_shapes, plan
from .model import Computation, Network, check_tensors, first_lines, open_session, output_tensors
from .offline import Source
from .shapes import CompileError, Shapes, fixed_inputs, quoted
from .tensors import BY_ONNX, Tensor, from_ort_type


def compile_model(
    source: Source,
    config: Config,
    shapes: Shapes | None,
    examples: Mapping[str, Any] | None,
    output_shapes: Shapes | None,
    gears: Mapping[str, Any] | None,
    running: Callable[[Any], None],
) -> bytes:
    """The offline model of `source`. `running` is told every ``RunOptions`` used, so that a run can be ended."""
    if source.inputs is not None or source.is_om:
        raise CompileError(f"{source.where} is compiled already")
    graph = read_graph(source)
    try:
        check_tensors(graph.inputs, "inputs")
    except Failure as failure:
        raise CompileError(failure.text, [e.name for e in graph.inputs if e.elem_type not in BY_ONNX]) from None
    unknown = [name for name in shapes or {} if name not in {entry.name for entry in graph.inputs}]
    if gears is None:
        inputs = fixed_inputs(graph.inputs, shapes or {})
        feeds = checked_examples(inputs, examples or {})
        session, refused = fixed_session(source, graph, inputs, config)
        outputs = final_outputs(session, inputs, feeds, dict(output_shapes or {}), running, refused)
        return offline.write_offline(source, _by_name(inputs), _by_name(outputs))
    if unknown or examples or output_shapes:
        raise CompileError("with gears= only shapes= of the model's own inputs can be given", unknown)
    asked = plan(graph.inputs, shapes or {}, gears)
    if asked.kind == "free":
        signature = free_signature(asked.shown, graph, open_axes_session(source, graph, config))
        return offline.write_offline(source, asked.shown, _by_name(signature.outputs), {"kind": "free"})
    _, found = geared_session(source, graph, asked, config, running)
    choices = [
        {"values": gear.values, "inputs": _by_name(gear.inputs), "outputs": _by_name(gear.outputs)}
        for gear in found.choices
    ]
    largest = found.largest()
    return offline.write_offline(
        source, asked.shown, _by_name(largest.outputs), {"kind": found.kind, "choices": choices}
    )


def _by_name(tensors: Sequence[Tensor]) -> dict[str, tuple[int, ...]]:
    return {one.name: one.shape for one in tensors}


def geared_session(
    source: Source, graph: onnx_wire.Graph, asked: Plan, config: Config, running: Callable[[Any], None]
) -> tuple[Any, Gears]:
    """One session for all gears, and the gears with their output shapes: from axis names, else from runs."""
    session = open_axes_session(source, graph, config)
    choices = []
    for values in asked.values:
        inputs = asked.inputs(graph.inputs, values)
        named = named_shapes(graph.inputs, inputs, session.get_outputs())
        given: dict[str, Sequence[int]] = dict(named) if named is not None else {}
        choices.append(Gear(values, inputs, final_outputs(session, inputs, {}, given, running)))
    return session, Gears(asked.kind, tuple(choices), tuple(asked.shown[entry.name] for entry in graph.inputs))


def open_axes_session(source: Source, graph: onnx_wire.Graph, config: Config) -> Any:
    """An ORT session of the model as it is."""
    try:
        return open_session(source, [source.data], config, graph.external_data)
    except Failure:
        raise
    except Exception as error:
        raise CompileError(f"ONNX Runtime refuses {source.where}: {first_lines(error)}") from None


def read_graph(source: Source) -> onnx_wire.Graph:
    """The graph's inputs and outputs; `Failure` when the file is no .onnx."""
    try:
        return onnx_wire.read(source.data)
    except onnx_wire.WireError as error:
        raise Failure(codes.PARSE_MODEL, f"{source.where} is not an ONNX model, or is damaged: {error}") from None


def fixed_session(
    source: Source, graph: onnx_wire.Graph, inputs: Sequence[Tensor], config: Config
) -> tuple[Any, str | None]:
    """An ORT session of the model with its inputs fixed; ORT's refusals become `CompileError`."""
    try:
        return session_of(source, graph, inputs, config)
    except Failure:
        raise
    except Exception as error:
        raise CompileError(f"ONNX Runtime refuses {source.where}: {first_lines(error)}") from None


def session_of(
    source: Source, graph: onnx_wire.Graph, inputs: Sequence[Tensor], config: Config
) -> tuple[Any, str | None]:
    """An ORT session with the inputs' axes fixed in the graph, or left open where only that loads; ORT's errors pass.

    The second value says why ORT refused the fixed axes, if it did.

    Static shapes also reach branches of an ``If`` that never run and may make no sense there (the speech model
    silero-vad: its 8 kHz branch at the length of a 16 kHz chunk), and ORT then refuses the whole model. The axes are
    final either way: every run binds exactly the shapes of `inputs`.
    """
    pieces = patched(source, graph, inputs)
    try:
        return open_session(source, pieces, config, graph.external_data), None
    except Failure:
        raise
    except Exception as refused:
        if len(pieces) == 1 and pieces[0] is source.data:
            raise
        try:
            return open_session(source, [source.data], config, graph.external_data), first_lines(refused)
        except Exception:
            raise refused from None


def patched(source: Source, graph: onnx_wire.Graph, inputs: Sequence[Tensor]) -> list[memoryview]:
    """The pieces of the file with the final input shapes."""
    declared = {entry.name: entry.shape for entry in graph.inputs}
    changed = {one.name: one.shape for one in inputs if declared[one.name] != one.shape}
    if not changed:
        return [source.data]
    return onnx_wire.with_fixed_inputs(source.data, graph, changed)


def _check_given(name: str, given: tuple[int, ...], inferred: Sequence[int | str | None]) -> None:
    """`CompileError` where a stated output shape contradicts what shape inference knows of it."""
    fits = len(given) == len(inferred) and all(
        size == known for size, known in zip(given, inferred, strict=True) if isinstance(known, int)
    )
    if inferred and not fits:
        raise CompileError(f"output {name!r}: shape inference finds {tuple(inferred)}, {given} was given", [name])


def final_outputs(
    session: Any,
    inputs: Sequence[Tensor],
    feeds: Mapping[str, numpy.ndarray[Any, Any]],
    given: dict[str, Sequence[int]],
    running: Callable[[Any], None],
    refused: str | None = None,
) -> tuple[Tensor, ...]:
    """Every output with its final shape: `given` first, then ORT's shape inference, then runs on example values.

    `refused`: ORT does not take the input shapes as a whole (`session_of`); then a run must show that they work.
    """
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
        if entry.name in shapes:
            if refused is None:
                _check_given(entry.name, shapes[entry.name], entry.shape)
        else:
            if refused is None and all(isinstance(size, int) for size in entry.shape):
                shapes[entry.name] = tuple(entry.shape)
            else:
                missing.append(entry.name)
    if missing:
        seen = example_runs(session, inputs, feeds, running, refused)
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


def load_network(source: Source, config: Config, running: Callable[[Any], None]) -> Computation:
    """Load an offline model or an .onnx; `Failure` with a loading code and a readable text when it cannot be.

    An .onnx is static, or says its gears in its metadata or in a file beside it (``model.onnx.gears.json``).
    """
    if source.is_om:
        return open_dry(source, config)
    graph = read_graph(source)
    check_tensors(graph.inputs, "inputs")
    size = len(source.data)
    try:
        if source.gears is not None and source.gears.get("kind") == "free":
            session = open_axes_session(source, graph, config)
            return Network(session, free_signature(source.inputs or {}, graph, session), size, graph.name)
        if source.gears is not None:
            return Network(open_axes_session(source, graph, config), _stored_gears(source, graph), size, graph.name)
        asked = _described_gears(source, graph) if source.inputs is None else None
        if asked is not None and asked.kind == "free":
            session = open_axes_session(source, graph, config)
            return Network(session, free_signature(asked.shown, graph, session), size, graph.name)
        if asked is not None:
            session, gears = geared_session(source, graph, asked, config, running)
            return Network(session, Signature.of(gears), size, graph.name)
    except CompileError as error:
        raise Failure(codes.GE_LOAD_MODEL, str(error)) from None
    try:
        inputs = fixed_inputs(graph.inputs, source.inputs or {})
    except CompileError as error:
        hint = 'A file model.onnx.gears.json beside the model gives it gears, or keeps its axes open: {"free": true}'
        raise Failure(codes.GE_SHAPE_INVALID, f"{error}. {hint}") from None
    try:
        session, _ = session_of(source, graph, inputs, config)
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
    return Network(session, Signature(inputs, outputs), size, graph.name)


def _described_gears(source: Source, graph: onnx_wire.Graph) -> Plan | None:
    """Gears that an .onnx itself, or a file beside it, asks for."""
    text = graph.metadata.get(METADATA_KEY)
    if text is None and source.path is not None:
        try:
            with open(f"{source.path}.gears.json", encoding="utf-8") as file:
                text = file.read()
        except OSError:
            return None
    if text is None:
        return None
    try:
        asked = json.loads(text)
        shapes = asked.pop("shapes", {})
    except (ValueError, AttributeError) as error:
        raise CompileError(f"the gears of {source.where} are not a JSON object: {error}") from None
    return plan(graph.inputs, shapes, asked)


def _stored_gears(source: Source, graph: onnx_wire.Graph) -> Signature:
    stored = source.gears or {}
    types = {entry.name: BY_ONNX[entry.elem_type] for entry in graph.inputs if entry.elem_type is not None}
    try:
        choices = tuple(
            Gear(
                tuple(choice["values"]),
                tuple(Tensor(name, types[name], tuple(shape)) for name, shape in choice["inputs"].items()),
                tuple(
                    Tensor(entry.name, BY_ONNX[entry.elem_type or 0], tuple(choice["outputs"][entry.name]))
                    for entry in graph.outputs
                ),
            )
            for choice in stored["choices"]
        )
        shown = tuple((source.inputs or {})[entry.name] for entry in graph.inputs)
        return Signature.of(Gears(str(stored["kind"]), choices, shown))
    except (KeyError, TypeError, IndexError) as error:
        raise Failure(codes.MODEL_MISSING_ATTR, f"{source.where} is a damaged offline model: {error!r}") from None
