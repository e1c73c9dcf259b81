"""Element types and layouts: the file's own numbers and those of ACL (om-format §4, pyACL reference §14)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ElementType", "acl_format", "from_acl", "from_proto", "layout_name"]


@dataclass(frozen=True)
class ElementType:
    """One element type: `name` is numpy's where numpy has it, `acl` ACL's number (-1: none), `bits` its size."""

    name: str
    acl: int
    bits: int


# Two numberings: that of MODEL_DEF and that of ACL, which MODEL_INOUT_INFO uses as well.
_TYPES = {
    1: ElementType("float32", 0, 32),
    2: ElementType("float16", 1, 16),
    3: ElementType("int8", 2, 8),
    4: ElementType("uint8", 4, 8),
    5: ElementType("int16", 6, 16),
    6: ElementType("uint16", 7, 16),
    7: ElementType("int32", 3, 32),
    8: ElementType("int64", 9, 64),
    9: ElementType("uint32", 8, 32),
    10: ElementType("uint64", 10, 64),
    11: ElementType("bool", 12, 8),
    12: ElementType("float64", 11, 64),
    13: ElementType("string", 13, 0),
    16: ElementType("complex64", 16, 64),
    17: ElementType("complex128", 17, 128),
    27: ElementType("bfloat16", 27, 16),
    28: ElementType("int4", 29, 4),
}
_UNDEFINED = ElementType("undefined", -1, 0)
_BY_ACL = {one.acl: one for one in _TYPES.values()}

_FORMATS = {
    "NCHW": 0,
    "NHWC": 1,
    "ND": 2,
    "NC1HWC0": 3,
    "FRACTAL_Z": 4,
    "NC1HWC0_C04": 12,
    "HWCN": 16,
    "NDHWC": 27,
    "FRACTAL_NZ": 29,
    "NCDHW": 30,
    "NDC1HWC0": 32,
    "FRACTAL_Z_3D": 33,
    "NC": 35,
    "NCL": 47,
}
_LAYOUTS = {number: name for name, number in _FORMATS.items()}


def from_proto(number: int) -> ElementType:
    """The element type of a number in MODEL_DEF."""
    found = _TYPES.get(number)
    if found is not None:
        return found
    return ElementType(f"type {number} of the file", -1, 0) if number else _UNDEFINED


def from_acl(number: int) -> ElementType:
    """The element type of ACL's number."""
    return _BY_ACL.get(number, _UNDEFINED)


def acl_format(layout: str) -> int:
    """ACL's number of a layout; -1 where it has none."""
    return _FORMATS.get(layout, -1)


def layout_name(number: int) -> str:
    """The layout of ACL's number."""
    return _LAYOUTS.get(number, "undefined")
