"""A writer of small offline models, for what no real file at hand has.

It is written from the format's description alone, apart from the reader's code, so that both must agree on it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

V1, V2 = 0x10000000, 0x20000000
MODEL_DEF, WEIGHTS, TASK_INFO, TBE, INOUT, BUNDLE_MODEL, BUNDLE_VARS = 0, 1, 2, 3, 8, 24, 25
FLOAT, FLOAT16, INT8, UINT8, INT32, INT64, BF16, INT4 = 1, 2, 3, 4, 7, 8, 27, 28


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field_number: int, value: int) -> bytes:
    return varint(field_number << 3) + varint(value)


def chunk(field_number: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(field_number << 3 | 2) + varint(len(data)) + data


def packed(field_number: int, values: Sequence[int]) -> bytes:
    return chunk(field_number, b"".join(map(varint, values)))


def unpacked(field_number: int, values: Sequence[int]) -> bytes:
    return b"".join(number(field_number, value) for value in values)


def attribute(value: Any) -> bytes:
    """An AttrDef of a text, bool, int, float, or of a list of texts, bools or ints."""
    if isinstance(value, bool):
        return number(5, value)
    if isinstance(value, int):
        return number(3, value)
    if isinstance(value, float):
        return varint(4 << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, (str, bytes)):
        return chunk(2, value)
    values = list(value)
    if values and isinstance(values[0], bool):
        return chunk(1, packed(5, values))
    if values and isinstance(values[0], int):
        return chunk(1, packed(3, values))
    return chunk(1, b"".join(chunk(2, one) for one in values))


def attributes(field_number: int, values: Mapping[str | bytes, Any]) -> bytes:
    return b"".join(chunk(field_number, chunk(1, key) + chunk(2, attribute(value))) for key, value in values.items())


def descriptor(
    dtype: int, shape: Sequence[int], layout: str = "ND", size: int = 0, attrs: Mapping[str | bytes, Any] | None = None
) -> bytes:
    return (
        number(2, dtype)
        + chunk(3, packed(1, shape) if shape else b"")
        + chunk(4, layout)
        + attributes(5, attrs or {})
        + number(10, size)
    )


def operator(
    name: str,
    op_type: str,
    *,
    attrs: Mapping[str | bytes, Any] | None = None,
    inputs: Sequence[bytes] = (),
    outputs: Sequence[bytes] = (),
    sources: Sequence[tuple[str, int]] = (),
) -> bytes:
    return (
        chunk(1, name)
        + chunk(2, op_type)
        + attributes(10, attrs or {})
        + b"".join(chunk(24, source) for source, _ in sources)
        + packed(25, [index for _, index in sources])
        + b"".join(chunk(33, one) for one in inputs)
        + b"".join(chunk(34, one) for one in outputs)
    )


def data(
    name: str,
    index: int | None,
    dtype: int,
    shape: Sequence[int],
    layout: str = "ND",
    size: int = 0,
    attrs: Mapping[str | bytes, Any] | None = None,
    op_type: str = "Data",
) -> bytes:
    described = descriptor(dtype, shape, layout, size)
    given = {**({} if index is None else {"index": index}), **(attrs or {})}
    return operator(name, op_type, attrs=given, inputs=[described], outputs=[described])


def net_output(
    outputs: Sequence[bytes], sources: Sequence[tuple[str, int]], attrs: Mapping[str | bytes, Any] | None = None
) -> bytes:
    return operator("Node_Output", "NetOutput", attrs=attrs, inputs=outputs, sources=sources)


def gear_case(kind: int, gears: Sequence[Sequence[int]], order: Sequence[str] = ()) -> bytes:
    """The Case operator that chooses among gears: 1 batch, 2 height and width, 3 dims."""
    attrs: dict[str | bytes, Any] = {
        "_batch_num": len(gears),
        "mbatch_dynamic_type": kind,
        "mbatch-inserted-node": True,
        **{f"_pred_value_{index}": list(gear) for index, gear in enumerate(gears)},
    }
    if order:
        attrs["user_designate_shape_order"] = list(order)
    return operator("ascend_mbatch_shape_case", "Case", attrs=attrs)


def graph(name: str, operators: Sequence[bytes]) -> bytes:
    return chunk(1, name) + b"".join(chunk(6, one) for one in operators)


def definition(graphs: Sequence[bytes], attrs: Mapping[str | bytes, Any] | None = None, name: str = "written") -> bytes:
    return (
        chunk(1, name)
        + number(2, 2)
        + chunk(3, "1.11.z.0")
        + b"".join(chunk(7, one) for one in graphs)
        + attributes(11, attrs or {})
    )


def tasks(memory: int = 4096, count: int = 2, weights: int = 0) -> bytes:
    return b"".join(chunk(10, number(1, index)) for index in range(count)) + number(11, memory) + number(14, weights)


@dataclass
class File:
    """A file to be written: `tables` are the (type, bytes) of each model in it."""

    tables: Sequence[Sequence[tuple[int, bytes]]]
    version: int = V2
    wide: bool = True
    modeltype: int = 0
    encrypted: int = 0
    unknown: int = 0
    name: str = "written"
    platform: str = "1.11.z.0"
    models: int | None = None
    changes: dict[int, bytes] = field(default_factory=dict)

    def __bytes__(self) -> bytes:
        body = b"".join(self._table(table) for table in self.tables)
        head = bytearray(256)
        struct.pack_into("<4sII", head, 0, b"IMOD", 256, self.version)
        struct.pack_into("<4B", head, 80, self.encrypted, 0, self.modeltype, 0)
        head[84 : 84 + len(self.name)] = self.name.encode()
        struct.pack_into("<I", head, 152, 2)
        platform = self.platform.encode()
        if self.version < V2:
            struct.pack_into("<I", head, 76, len(body))
            head[156 : 156 + len(platform)] = platform
        else:
            struct.pack_into("<I", head, 156, len(self.tables) if self.models is None else self.models)
            head[160 : 160 + len(platform)] = platform
            head[180] = 1
            if self.wide:
                struct.pack_into("<Q", head, 184, len(body) + 256 * (self.modeltype == 5))
            else:
                struct.pack_into("<I", head, 76, len(body))
            head[193] = self.unknown
        for offset, value in self.changes.items():
            head[offset : offset + len(value)] = value
        return bytes(head) + body

    def _table(self, sections: Sequence[tuple[int, bytes]]) -> bytes:
        count = len(sections)
        wide = self.version >= V2 and self.wide
        table = struct.pack("<I4x" if wide else "<I", count)
        at = 8 + 24 * count if self.modeltype == 5 else 0  # a bundle counts from the table's beginning
        for kind, content in sections:
            table += struct.pack("<I4xQQ" if wide else "<III", kind, at, len(content))
            at += len(content)
        return table + b"".join(content for _, content in sections)


MODEL_ATTRIBUTES: dict[str | bytes, Any] = {
    "memory_size": 4096,
    "weight_size": 64,
    "stream_num": 1,
    "event_num": 0,
    "target_type": "MINI",
    "soc_version": "Ascend310P3",
    "atc_version": "7.0",
    "framework_type": "Onnx",
}


def simple(
    operators: Sequence[bytes] | None = None,
    attrs: Mapping[str | bytes, Any] | None = None,
    weights: bytes = b"w" * 64,
    **changes: Any,
) -> bytes:
    """A static model: x (float32 [1,3,4,4] NCHW) to y (float16 [1,5]), or other operators."""
    if operators is None:
        operators = [
            data("x", 0, FLOAT, [1, 3, 4, 4], "NCHW", 192),
            operator("conv", "Conv2D"),
            net_output([descriptor(FLOAT16, [1, 5], "ND", 64)], [("conv", 0)]),
        ]
        attrs = {"attr_model_out_nodes_name": ["conv:0:y"], **(attrs or {})}
    model = definition([graph("main", operators)], {**MODEL_ATTRIBUTES, **(attrs or {})})
    sections = [(MODEL_DEF, model), (WEIGHTS, weights), (TASK_INFO, tasks())]
    return bytes(File([sections], **changes))


def geared(kind: str, **changes: Any) -> bytes:
    """A model with gears: "batch" {1, 2, 4}, "hw" {(4, 4), (8, 6)} or "dims" of two inputs."""
    if kind == "batch":
        inputs = [data("x", 0, FLOAT, [4, 3], "ND", 48, {"_mbatch_origin_input_dims": [-1, 3]})]
        gears, number_of_kind, order = [[1], [2], [4]], 1, ()
        outputs = ["0,0,1,2", "1,0,2,2", "2,0,4,2"]
        largest = [4, 2]
    elif kind == "hw":
        inputs = [data("x", 0, UINT8, [1, 3, 8, 6], "NCHW", 144, {"_mbatch_origin_input_dims": [1, 3, -1, -1]})]
        gears, number_of_kind, order = [[4, 4], [8, 6]], 2, ()
        outputs = ["0,0,1,16", "1,0,1,48"]
        largest = [1, 48]
    else:
        inputs = [
            data("a", 0, FLOAT, [1, 32], "ND", 128, {"_mbatch_origin_input_dims": [1, -1]}),
            data("b", 1, FLOAT, [2, 8], "ND", 64, {"_mbatch_origin_input_dims": [-1, -1]}),
        ]
        # The values follow the order that the user gave, here b before a.
        gears, number_of_kind, order = [[1, 4, 16], [2, 8, 32]], 3, ("b", "a")
        outputs = ["-1,0,7"]
        largest = [7]
    width = len(gears[0])
    operators = [
        *inputs,
        data("ascend_mbatch_shape_data", len(inputs), INT32, [width], "ND", 4 * width),
        gear_case(number_of_kind, gears, order),
        net_output([descriptor(FLOAT, largest, "ND", 128)], [("case", 0)], {"_dynamic_output_dims": outputs}),
    ]
    return simple(operators, {"attr_model_out_nodes_name": ["case:0:y"]}, **changes)


def inout_record(size: int, layout: int, dtype: int, name: str, dims: Sequence[int]) -> bytes:
    shape = struct.pack(f"<{len(dims)}q", *dims)
    text = name.encode()
    return struct.pack("<QiiIIII", size, layout, dtype, len(text), len(shape), len(shape), 0) + text + shape + shape


def inout(inputs: Sequence[bytes], outputs: Sequence[bytes]) -> bytes:
    def block(kind: int, records: Sequence[bytes]) -> bytes:
        content = struct.pack("<I", len(records)) + b"".join(records)
        return struct.pack("<II", kind, len(content)) + content

    return block(0, inputs) + block(1, outputs)


def bundle(models: Sequence[bytes]) -> bytes:
    sections = [(BUNDLE_VARS, struct.pack("<Q", 4096)), *((BUNDLE_MODEL, model) for model in models)]
    return bytes(File([sections], modeltype=5))
