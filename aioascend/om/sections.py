"""Partition tables, and the sections that they list (om-format §3)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .errors import PARAM_INVALID, OmError
from .header import HEADER_SIZE, LITE, Header
from .pieces import Budget, Pieces

__all__ = ["MODEL_DEF", "Section", "read_tables"]

MODEL_DEF, WEIGHTS_DATA, TASK_INFO, MODEL_INOUT_INFO, BUNDLE_MODEL_INFO = 0, 1, 2, 8, 24
_NAMES = {
    MODEL_DEF: "MODEL_DEF",
    WEIGHTS_DATA: "WEIGHTS_DATA",
    TASK_INFO: "TASK_INFO",
    3: "TBE_KERNELS",
    4: "CUST_AICPU_KERNELS",
    5: "SO_BINS",
    6: "FLOW_MODEL",
    7: "FLOW_SUBMODEL",
    MODEL_INOUT_INFO: "MODEL_INOUT_INFO",
    9: "STATIC_TASK_DESC",
    10: "DYNAMIC_TASK_DESC",
    11: "TASK_PARAM",
    12: "TILING_DATA",
    20: "PRE_MODEL_DESC",
    21: "PRE_MODEL_SQE",
    22: "PRE_KERNEL_ARGS",
    23: "PRE_MODEL_DESC_EXTEND",
    BUNDLE_MODEL_INFO: "BUNDLE_MODEL_INFO",
    25: "BUNDLE_MODEL_VAR_INFO",
    26: "CUSTOM_OPS",
}
_PHONE_NAMES = {3: "TASK_GRAPH", 4: "SIGNATURE", 5: "CONFIG", 6: "AIPP", 7: "ENCRYPT"}

_NARROW, _WIDE = struct.Struct("<III"), struct.Struct("<I4xQQ")


@dataclass(frozen=True)
class Section:
    """One partition: its type, `offset` from the file's first byte, and size in bytes."""

    type: int
    name: str
    offset: int
    size: int


def read_tables(pieces: Pieces, header: Header, budget: Budget, notes: list[str]) -> tuple[tuple[Section, ...], ...]:
    """The sections of every model in the file.

    Sections are walked by size, as the vendor's loader does; `notes` gets what the tables say otherwise.
    """
    count = 1 if header.phone or header.bundle else header.model_num
    if count < 1:
        raise OmError("damaged: the header says that there are 0 models in the file", pieces.start + 156)
    tables: list[tuple[Section, ...]] = []
    at = HEADER_SIZE
    while len(tables) < count:
        sections, at = _read_table(pieces, header, at, len(tables), count, budget, notes)
        tables.append(sections)
    if at != pieces.size:
        raise OmError(f"damaged: {pieces.size - at} bytes follow the last section", pieces.start + at)
    return tuple(tables)


def _read_table(
    pieces: Pieces, header: Header, at: int, index: int, count: int, budget: Budget, notes: list[str]
) -> tuple[tuple[Section, ...], int]:
    where = pieces.start + at
    which = f" of model {index} of {count}" if count > 1 else ""
    head, entry = (8, _WIDE) if header.wide else (4, _NARROW)
    left = pieces.size - at
    if left < head:
        raise OmError(f"cut short: {left} bytes are left where the partition table{which} should be", where)
    number = int.from_bytes(pieces.read(at, 4), "little")
    if not 0 < number <= (left - head) // entry.size:
        raise OmError(
            f"damaged: the partition table{which} says that it has {number} partitions; {left} bytes are left",
            where,
            PARAM_INVALID,
        )
    budget.take(2 * entry.size * number, where)
    table = pieces.read(at + head, entry.size * number)
    begin = place = at + head + entry.size * number
    sections = []
    strays = 0
    for row in range(number):
        kind, offset, size = entry.unpack_from(table, row * entry.size)
        budget.take(320, where)
        row_at = where + head + row * entry.size
        if header.modeltype == LITE and not header.phone:
            if offset < place - begin:
                raise OmError(f"damaged: {_name(kind, header)} begins inside the section before it", row_at)
            place = begin + offset  # this writer alone leaves gaps, to align
        elif offset != place - (at if header.bundle else begin):
            strays += 1
        if size > pieces.size - place:
            raise OmError(
                f"damaged or cut short: {_name(kind, header)}{which} has {size} bytes by the partition table, "
                f"{max(0, pieces.size - place)} are left",
                row_at,
            )
        sections.append(Section(kind, _name(kind, header), pieces.start + place, size))
        place += size
    if strays:
        notes.append(f"the partition table{which} gives other offsets than the sizes do, for {strays} sections")
    return tuple(sections), place


def _name(kind: int, header: Header) -> str:
    if header.phone and kind in _PHONE_NAMES:
        return _PHONE_NAMES[kind]
    return _NAMES.get(kind, f"type {kind}")
