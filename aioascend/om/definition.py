"""MODEL_DEF: the graph, taken apart as far as a user of the model has to know it (om-format §4 to §7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .attributes import Names, Value, attributes, entries
from .gears import Gears, output_shapes, read_gears
from .gears import wanted as about_gears
from .tensors import UNKNOWN, Descriptor, OmTensor, input_tensor, output_names, output_tensor, read_descriptor
from .wire import BYTES, VARINT, Message

__all__ = ["Definition", "read_definition"]

_SHOWN = frozenset(
    {
        b"memory_size",
        b"weight_size",
        b"zero_copy_memory_size",
        b"p2p_memory_size",
        b"stream_num",
        b"event_num",
        b"notify_num",
        b"label_num",
        b"core_type",
        b"target_type",
        b"task_gen_base_addr",
        b"task_gen_weight_addr",
        b"atc_version",
        b"opp_version",
        b"soc_version",
        b"framework_type",
        b"atc_cmdline",
        b"attr_model_out_nodes_name",
        b"host_env_os",
        b"host_env_cpu",
        b"om_info_list",
    }
)
_TABLES = frozenset({b"attr_name_enum", b"attr_value_enum", b"attrs_use_string_value"})
_OF_INPUTS = frozenset(
    {
        b"index",
        b"_dynamic_aipp_input_dims",
        b"_mbatch_origin_input_dims",
        b"input_dims",
        b"_data_related_aipp_mode",
    }
)
_OUTPUT_DIMS = b"_dynamic_output_dims"
_INPUT_TYPES = frozenset({b"Data", b"AippData", b"AnnData"})
_TAKEN_APART = _INPUT_TYPES | {b"NetOutput", b"Case"}
_LONGEST_TYPE = 256


@dataclass(frozen=True)
class Definition:
    """What MODEL_DEF says. `op_types` counts the operators of all graphs by type, the most frequent first."""

    name: str
    ir_version: int
    custom_version: str
    graph_names: tuple[str, ...]
    compressed: bool
    attributes: Mapping[str, Value]
    op_types: Mapping[str, int]
    inputs: tuple[OmTensor, ...]
    outputs: tuple[OmTensor, ...]
    gears: Gears | None

    @property
    def op_count(self) -> int:
        """Operators in all graphs."""
        return sum(self.op_types.values())


@dataclass
class _Main:
    """What the operators of the main graph tell."""

    inputs: list[tuple[int, OmTensor]] = field(default_factory=list)
    outputs: list[Descriptor] | None = None
    sources: list[str] = field(default_factory=list)
    indices: tuple[int, ...] = ()
    output_dims: Value | None = None
    gears: Gears | None = None


def _interesting(name: bytes) -> bool:
    return name in _OF_INPUTS or name == _OUTPUT_DIMS or about_gears(name)


def read_definition(message: Message, dynamic_shape: bool, graphs: bool, notes: list[str]) -> Definition:
    """Decode a MODEL_DEF; without `graphs` its attributes only."""
    name = custom_version = ""
    version = 0
    for number, kind, start, end in message.fields():
        if number == 1 and kind == BYTES:
            name = message.sub(start, end).text()
        elif number == 2 and kind == VARINT:
            version = start
        elif number == 3 and kind == BYTES:
            custom_version = message.sub(start, end).text()
    names = _names(message)
    shown = attributes(message, 11, Names(), _SHOWN.__contains__)
    types: dict[bytes, int] = {}
    main = _Main()
    graph_names = []
    for index, graph in enumerate(message.messages(7) if graphs else ()):
        graph_names.append(_graph(graph, types, main if index == 0 else None, names, dynamic_shape, notes))
    outputs = main.outputs or []
    named = output_names(shown.get("attr_model_out_nodes_name"), main.sources, main.indices, len(outputs))
    gears = main.gears
    if gears is not None:
        gears = replace(gears, outputs=output_shapes(main.output_dims))
    counted = sorted(types.items(), key=lambda one: (-one[1], one[0]))
    return Definition(
        name,
        version,
        custom_version,
        tuple(graph_names),
        names.compressed,
        shown,
        {kind.decode(errors="backslashreplace"): count for kind, count in counted},
        tuple(tensor for _, tensor in sorted(main.inputs, key=lambda one: one[0])),
        tuple(output_tensor(name, described) for name, described in zip(named, outputs, strict=True)),
        gears,
    )


def _names(message: Message) -> Names:
    tables: dict[bytes, Message] = {}
    compressed = False
    for key, value in entries(message, 11):
        compressed = compressed or key == b"om_compress_version"
        if key in _TABLES:
            tables[key] = value
    return Names.of(tables, _interesting) if compressed else Names()


def _graph(
    graph: Message,
    types: dict[bytes, int],
    main: _Main | None,
    names: Names,
    dynamic_shape: bool,
    notes: list[str],
) -> str:
    """Count the operators of a graph, take those apart that describe the model if it is the main one, give its name."""
    name = ""
    graph.budget.take(40, graph.base + graph.start)
    for number, kind, start, end in graph.fields():
        if kind != BYTES:
            continue
        if number == 1:
            name = graph.sub(start, end).text()
        elif number == 6:
            op = graph.sub(start, end)
            op_type = _op_type(op)
            if op_type in types:
                types[op_type] += 1
            else:
                graph.budget.take(12 * len(op_type) + 480, graph.base + start)
                types[op_type] = 1
            if main is not None and op_type in _TAKEN_APART:
                _take_apart(op, op_type, main, names, dynamic_shape, notes)
    return name


def _op_type(op: Message) -> bytes:
    for number, kind, start, end in op.fields():
        if number == 2 and kind == BYTES:
            return bytes(op.data[start : min(end, start + _LONGEST_TYPE)])
    return b""


def _take_apart(op: Message, op_type: bytes, main: _Main, names: Names, dynamic_shape: bool, notes: list[str]) -> None:
    if op_type in _INPUT_TYPES:
        _add_input(op, op_type.decode(), main, names, dynamic_shape)
    elif op_type == b"NetOutput" and main.outputs is None:
        values = attributes(op, 10, names, _OUTPUT_DIMS.__eq__)
        main.output_dims = values.get(_OUTPUT_DIMS.decode())
        main.outputs = [_described(one, names) for one in op.messages(33)]
        main.sources = [one.text() for one in op.messages(24)]
        main.indices = op.kept_integers(25)
    elif op_type == b"Case" and main.gears is None:
        main.gears = read_gears(attributes(op, 10, names, about_gears), notes)


def _add_input(op: Message, op_type: str, main: _Main, names: Names, dynamic_shape: bool) -> None:
    name = ""
    for text in op.messages(1):
        name = text.text()
    described = UNKNOWN
    for number in (33, 34):
        found = next(op.messages(number), None)
        if found is not None:
            described = _described(found, names)
            break
    values = attributes(op, 10, names, _OF_INPUTS.__contains__)
    op.budget.take(1200, op.base + op.start)
    index = values.get("index")
    place = index if isinstance(index, int) else len(main.inputs)
    main.inputs.append((place, input_tensor(name, described, values, dynamic_shape, op_type)))


def _described(message: Message, names: Names) -> Descriptor:
    message.budget.take(1200, message.base + message.start)
    return read_descriptor(message, names)
