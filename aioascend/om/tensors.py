"""Inputs and outputs of a graph, as `aclmdlGetDesc` reports them (om-format §6)."""

from __future__ import annotations

from dataclasses import dataclass

from .attributes import Names, Value, attributes
from .types import ElementType, acl_format, from_proto
from .wire import BYTES, VARINT, Message, signed

__all__ = ["Descriptor", "OmTensor", "product", "read_descriptor"]

_LARGEST = 1 << 62


@dataclass(frozen=True)
class OmTensor:
    """One input or output.

    `dtype` is numpy's name where numpy has one, `acl_dtype` ACL's number of it. `shape` has -1 at axes that are open or
    chosen by gears, `shape_v2` is the shape that a program gives a model with static AIPP. `largest` is the shape
    without -1 for the largest gear, where there are gears. `nbytes` is what ACL reports, `padded` what the compiler
    laid out for it, both in bytes. `aipp` says how pictures are prepared in the model: "static", "dynamic", "settings"
    for the input that takes the settings of a dynamic one, "" for not at all.
    """

    name: str
    dtype: str
    acl_dtype: int
    bits: int
    format: str
    acl_format: int
    shape: tuple[int, ...]
    shape_v2: tuple[int, ...]
    largest: tuple[int, ...]
    nbytes: int
    padded: int
    aipp: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Descriptor:
    """A TensorDescriptor of the file."""

    type: ElementType
    layout: str
    shape: tuple[int, ...]
    size: int
    special_size: int

    def content(self) -> int:
        """Bytes of the tensor without padding; 0 when an axis is open."""
        return product(self.shape, self.type.bits)


UNKNOWN = Descriptor(from_proto(0), "", (), 0, 0)


def product(shape: tuple[int, ...], bits: int) -> int:
    """Bytes of a tensor; 0 when an axis is open or the shape is larger than any memory."""
    total = bits
    for size in shape:
        if size < 0:
            return 0
        total *= size
        if total > _LARGEST:
            return 0
    return (total + 7) // 8


def _wanted(name: bytes) -> bool:
    return name == b"_special_input_size"


def read_descriptor(message: Message, names: Names) -> Descriptor:
    """Decode a TensorDescriptor."""
    dtype = size = 0
    layout = ""
    shape: tuple[int, ...] = ()
    for number, kind, start, end in message.fields():
        if number == 2 and kind == VARINT:
            dtype = start
        elif number == 3 and kind == BYTES:
            shape = message.sub(start, end).dims(1)
        elif number == 4 and kind == BYTES:
            layout = message.sub(start, end).text()
        elif number == 10 and kind == VARINT:
            size = signed(start)
    found = attributes(message, 5, names, _wanted)
    special = found.get("_special_input_size", 0)
    return Descriptor(from_proto(dtype), layout, shape, max(0, size), special if isinstance(special, int) else 0)


def numbers(value: Value | None) -> tuple[int, ...] | None:
    """The value of an attribute that should be a list of numbers, as a shape; None for any other."""
    if not isinstance(value, tuple) or len(value) > 128:
        return None
    kept = tuple(one for one in value if isinstance(one, int))
    return kept if len(kept) == len(value) else None


def input_tensor(
    name: str, described: Descriptor, values: dict[str, Value], dynamic_shape: bool, op_type: str
) -> OmTensor:
    """The tensor of a Data operator."""
    dims = numbers(values.get("_dynamic_aipp_input_dims"))
    if dims is None:
        dims = numbers(values.get("_mbatch_origin_input_dims"))
    shape = described.shape if dims is None else dims
    given = numbers(values.get("input_dims"))
    computed = product(shape if dynamic_shape else described.shape, described.type.bits)
    return OmTensor(
        name,
        described.type.name,
        described.type.acl,
        described.type.bits,
        described.layout or "undefined",
        acl_format(described.layout),
        shape,
        shape if given is None else given,
        described.shape,
        computed if dynamic_shape else described.size or computed,
        described.size,
        _aipp(name, values, op_type),
    )


def _aipp(name: str, values: dict[str, Value], op_type: str) -> str:
    mode = values.get("_data_related_aipp_mode")
    if op_type == "AippData" or name == "ascend_dynamic_aipp_data" or mode == "dynamic_aipp_conf":
        return "settings"
    if mode == "static_aipp" or "input_dims" in values:
        return "static"
    if mode == "dynamic_aipp" or "_dynamic_aipp_input_dims" in values:
        return "dynamic"
    return ""


def output_tensor(name: str, described: Descriptor) -> OmTensor:
    """The tensor of an input of the NetOutput operator."""
    shape, layout = described.shape, described.layout
    if layout == "FRACTAL_Z" and len(shape) == 4:
        shape = (shape[2], shape[3], shape[1], shape[0])  # told as HWCK
    return OmTensor(
        name,
        described.type.name,
        described.type.acl,
        described.type.bits,
        layout or "undefined",
        acl_format(layout),
        shape,
        shape,
        shape,
        described.special_size if described.special_size > 0 else described.content(),
        described.size,
    )


def output_names(told: Value | None, sources: list[str], indices: tuple[int, ...], count: int) -> list[str]:
    """Names of the outputs: those that the model keeps for them, else made from where each comes from."""
    kept = [one for one in told if isinstance(one, str)] if isinstance(told, tuple) else []
    names = []
    for position in range(count):
        index = indices[position] if position < len(indices) else 0
        if len(kept) == count:
            names.append(kept[position] if ":" in kept[position] else f"{kept[position]}:{index}")
        else:
            source = sources[position] if position < len(sources) else ""
            names.append(f"output_{position}_{source}_{index}")
    return names
