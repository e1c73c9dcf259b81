"""The few fields of an ONNX file that the emulator needs, read and patched at the level of protobuf's wire format.

Only tags and lengths are looked at, and no length is trusted: a truncated or foreign file raises `WireError`. Weights
are skipped, never copied. Field numbers are those of onnx.proto: ModelProto.graph 7 and .metadata_props 14,
GraphProto.name 2, .initializer 5, .input 11, .output 12, ValueInfoProto.name 1 and .type 2, TypeProto.tensor_type 1,
TypeProto.Tensor.elem_type 1 and .shape 2, TensorShapeProto.dim 1, Dimension.dim_value 1 and .dim_param 2,
TensorProto.name 8, .data_location 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Buffer = memoryview

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Not an ONNX file, or a damaged one."""


@dataclass(frozen=True)
class Field:
    """One field: its number, where tag and value start, where the value ends, and the value of a varint."""

    number: int
    kind: int
    at: int
    start: int
    end: int
    value: int


@dataclass(frozen=True)
class TensorInput:
    """A graph input or output. A dimension is an int, a str (named) or None (nothing said); `shape` None: no rank.

    `elem_type` is ONNX's number, or None for something that is no tensor (`kind` then says what).
    """

    name: str
    elem_type: int | None
    shape: tuple[int | str | None, ...] | None
    kind: str
    at: int
    end: int


@dataclass(frozen=True)
class Graph:
    """What `read` finds. `at`, `start`, `end`: tag, first and last byte of the graph inside the file."""

    inputs: tuple[TensorInput, ...]
    outputs: tuple[TensorInput, ...]
    external_data: bool
    name: str
    metadata: dict[str, str]
    at: int
    start: int
    end: int


_TYPE_KINDS = {1: "tensor", 4: "sequence", 5: "map", 7: "opaque", 8: "sparse tensor", 9: "optional"}


def _varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while True:
        if at >= end:
            raise WireError("the file ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise WireError("a number is longer than 64 bits")


def fields(data: Buffer, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in ``data[start:end]``."""
    at = start
    while at < end:
        tag_at = at
        tag, at = _varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise WireError("field number 0")
        value = 0
        if kind == _VARINT:
            first = at
            value, at = _varint(data, at, end)
            yield Field(number, kind, tag_at, first, at, value)
            continue
        if kind == _BYTES:
            length, at = _varint(data, at, end)
        elif kind == _FIXED64:
            length = 8
        elif kind == _FIXED32:
            length = 4
        else:
            raise WireError(f"wire type {kind} does not occur in ONNX files")
        if length > end - at:
            raise WireError(f"a field of {length} bytes where {end - at} are left: the file is truncated or damaged")
        yield Field(number, kind, tag_at, at, at + length, value)
        at += length


def _text(data: Buffer, field: Field) -> str:
    if field.kind != _BYTES:
        raise WireError(f"field {field.number} should be text")
    try:
        return bytes(data[field.start : field.end]).decode()
    except UnicodeDecodeError:
        raise WireError(f"field {field.number} is not UTF-8 text") from None


def _message(field: Field) -> tuple[int, int]:
    if field.kind != _BYTES:
        raise WireError(f"field {field.number} should be a message")
    return field.start, field.end


def _dimension(data: Buffer, start: int, end: int) -> int | str | None:
    found: int | str | None = None
    for field in fields(data, start, end):
        if field.number == 1 and field.kind == _VARINT:
            found = field.value - (1 << 64) if field.value >> 63 else field.value
        elif field.number == 2:
            found = _text(data, field) or None
    if isinstance(found, int) and found < 0:
        return None
    return found


def _tensor(data: Buffer, start: int, end: int) -> tuple[int, tuple[int | str | None, ...] | None]:
    elem_type = 0
    shape: tuple[int | str | None, ...] | None = None
    for field in fields(data, start, end):
        if field.number == 1 and field.kind == _VARINT:
            elem_type = field.value
        elif field.number == 2:
            dims = fields(data, *_message(field))
            shape = tuple(_dimension(data, *_message(dim)) for dim in dims if dim.number == 1)
    return elem_type, shape


def _value_info(data: Buffer, outer: Field) -> TensorInput:
    name, elem_type, shape, kind = "", None, None, "unknown"
    for field in fields(data, *_message(outer)):
        if field.number == 1:
            name = _text(data, field)
        elif field.number == 2:
            for choice in fields(data, *_message(field)):
                if choice.number in _TYPE_KINDS:
                    kind = _TYPE_KINDS[choice.number]
                if choice.number == 1:
                    elem_type, shape = _tensor(data, *_message(choice))
    return TensorInput(name, elem_type, shape, kind, outer.at, outer.end)


def read(data: Buffer) -> Graph:
    """The inputs (without those that have an initializer) and outputs of the model in `data`."""
    graph: Field | None = None
    metadata: dict[str, str] = {}
    for field in fields(data, 0, len(data)):
        if field.number == 7:
            graph = field
        elif field.number == 14:
            entry = {part.number: _text(data, part) for part in fields(data, *_message(field)) if part.kind == _BYTES}
            metadata[entry.get(1, "")] = entry.get(2, "")
    if graph is None:
        raise WireError("there is no graph in it")
    inputs: list[TensorInput] = []
    outputs: list[TensorInput] = []
    initializers: set[str] = set()
    external = False
    name = ""
    for field in fields(data, *_message(graph)):
        if field.number == 11:
            inputs.append(_value_info(data, field))
        elif field.number == 12:
            outputs.append(_value_info(data, field))
        elif field.number == 2:
            name = _text(data, field)
        elif field.number == 5:
            for part in fields(data, *_message(field)):
                if part.number == 8:
                    initializers.add(_text(data, part))
                elif part.number == 14 and part.value == 1:
                    external = True
    real = tuple(entry for entry in inputs if entry.name not in initializers)
    if not outputs:
        raise WireError("its graph has no outputs")
    return Graph(real, tuple(outputs), external, name, metadata, graph.at, graph.start, graph.end)


def encode_varint(value: int) -> bytes:
    """`value` as a protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _nested(number: int, payload: bytes) -> bytes:
    return encode_varint(number << 3 | _BYTES) + encode_varint(len(payload)) + payload


def encode_input(name: str, elem_type: int, shape: Sequence[int]) -> bytes:
    """A graph input field with fixed dimensions."""
    dims = b"".join(_nested(1, b"\x08" + encode_varint(size)) for size in shape)
    tensor = b"\x08" + encode_varint(elem_type) + _nested(2, dims)
    return _nested(11, _nested(1, name.encode()) + _nested(2, _nested(1, tensor)))


def with_fixed_inputs(data: Buffer, graph: Graph, shapes: Mapping[str, Sequence[int]]) -> list[Buffer]:
    """The pieces of the file in which the inputs named in `shapes` have these dimensions. Nothing big is copied."""
    pieces: list[Buffer] = []
    at = graph.start
    for entry in sorted(graph.inputs, key=lambda one: one.at):
        if entry.name in shapes and entry.elem_type is not None:
            pieces.append(data[at : entry.at])
            pieces.append(memoryview(encode_input(entry.name, entry.elem_type, shapes[entry.name])))
            at = entry.end
    pieces.append(data[at : graph.end])
    length = sum(len(piece) for piece in pieces)
    header = encode_varint(7 << 3 | _BYTES) + encode_varint(length)
    # the graph field is the only one whose length changes
    return [data[: graph.at], memoryview(header), *pieces, data[graph.end :]]
