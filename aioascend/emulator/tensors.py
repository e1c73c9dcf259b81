"""Element types: ONNX's number, ONNX Runtime's name, ACL's number, size in bits (reference §14)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod


@dataclass(frozen=True)
class ElementType:
    """One element type. `acl` is -1 where ACL has no number for it."""

    onnx: int
    name: str
    acl: int
    bits: int
    numpy: str | None


_TYPES = (
    ElementType(1, "float", 0, 32, "float32"),
    ElementType(2, "uint8", 4, 8, "uint8"),
    ElementType(3, "int8", 2, 8, "int8"),
    ElementType(4, "uint16", 7, 16, "uint16"),
    ElementType(5, "int16", 6, 16, "int16"),
    ElementType(6, "int32", 3, 32, "int32"),
    ElementType(7, "int64", 9, 64, "int64"),
    ElementType(9, "bool", 12, 8, "bool"),
    ElementType(10, "float16", 1, 16, "float16"),
    ElementType(11, "double", 11, 64, "float64"),
    ElementType(12, "uint32", 8, 32, "uint32"),
    ElementType(13, "uint64", 10, 64, "uint64"),
    ElementType(14, "complex64", 16, 64, "complex64"),
    ElementType(15, "complex128", 17, 128, "complex128"),
    ElementType(16, "bfloat16", 27, 16, None),
    ElementType(17, "float8e4m3fn", 36, 8, None),
    ElementType(19, "float8e5m2", 35, 8, None),
    ElementType(22, "int4", 29, 4, None),
)
BY_ONNX = {one.onnx: one for one in _TYPES}
BY_NAME = {one.name: one for one in _TYPES}
BY_ACL = {one.acl: one for one in _TYPES}


@dataclass(frozen=True)
class Tensor:
    """A model's input or output.

    `nbytes` is its size in memory: C order, no padding, 0 with an open axis (-1), unless a model file says a `size` of
    its own. `format` is ACL's layout (ND), `given` the shape of `get_input_dims_v2` where that is another, `aipp` ACL's
    number of how pictures are prepared.
    """

    name: str
    type: ElementType
    shape: tuple[int, ...]
    format: int = 2
    size: int = -1
    given: tuple[int, ...] | None = None
    aipp: int = 0
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        nbytes = 0 if min(self.shape, default=0) < 0 else (prod(self.shape) * self.type.bits + 7) // 8
        object.__setattr__(self, "nbytes", nbytes if self.size < 0 else self.size)


def from_ort_type(text: str) -> ElementType | None:
    """The element type in ONNX Runtime's ``tensor(float)``; None for anything that is no tensor of a known type."""
    if text.startswith("tensor(") and text.endswith(")"):
        return BY_NAME.get(text[7:-1])
    return None
