"""MODEL_INOUT_INFO: inputs and outputs as the compiler of newer CANN wrote them down (om-format §8).

Older files lack it, so that it only confirms what the graph says.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .errors import OmError
from .pieces import Budget
from .tensors import OmTensor

__all__ = ["Record", "compare", "read_records"]

_BLOCK = struct.Struct("<II")
_RECORD = struct.Struct("<QiiIIII")
_MOST_DIMS = 128
_INPUTS, _OUTPUTS = 0, 1


@dataclass(frozen=True)
class Record:
    """One input or output; numbers of type and layout are ACL's."""

    name: bytes
    acl_dtype: int
    acl_format: int
    shape: tuple[int, ...]
    nbytes: int


def read_records(data: memoryview, base: int, budget: Budget) -> tuple[list[Record] | None, list[Record] | None]:
    """The records of the inputs and of the outputs; None where the block is absent."""
    found: dict[int, list[Record]] = {}
    at = 0
    while at < len(data):
        if len(data) - at < _BLOCK.size:
            raise OmError("damaged: MODEL_INOUT_INFO ends inside a block's head", base + at)
        kind, length = _BLOCK.unpack_from(data, at)
        start = at + _BLOCK.size
        if length > len(data) - start:
            raise OmError(
                f"damaged: a block of MODEL_INOUT_INFO has {length} bytes, {len(data) - start} are left", base + at
            )
        if kind in (_INPUTS, _OUTPUTS):
            found[kind] = _records(data[start : start + length], base + start, budget)
        at = start + length
    return found.get(_INPUTS), found.get(_OUTPUTS)


def _records(data: memoryview, base: int, budget: Budget) -> list[Record]:
    if len(data) < 4:
        raise OmError("damaged: a block of MODEL_INOUT_INFO has no count", base)
    count = int.from_bytes(data[:4], "little")
    records: list[Record] = []
    at = 4
    for _ in range(count):
        if len(data) - at < _RECORD.size:
            raise OmError(f"damaged: MODEL_INOUT_INFO counts {count} tensors and has {len(records)}", base)
        size, layout, dtype, *lengths = _RECORD.unpack_from(data, at)
        start = at + _RECORD.size
        if sum(lengths) > len(data) - start:
            raise OmError("damaged: a tensor of MODEL_INOUT_INFO is longer than its block", base + at)
        name_end = start + lengths[0]
        number = min(lengths[1] // 8, _MOST_DIMS)
        budget.take(400 + 2 * lengths[0] + 56 * number, base + at)
        dims = struct.unpack_from(f"<{number}q", data, name_end)
        records.append(Record(bytes(data[start:name_end]), dtype, layout, dims, size))
        at = start + sum(lengths)
    return records


def compare(side: str, records: list[Record] | None, tensors: tuple[OmTensor, ...], notes: list[str]) -> None:
    """Note where the records and the graph tell different things."""
    if records is None:
        return
    if len(records) != len(tensors):
        notes.append(f"MODEL_INOUT_INFO has {len(records)} {side}s, the graph {len(tensors)}")
        return
    for record, tensor in zip(records, tensors, strict=True):
        name = record.name.rstrip(b"\x00").decode(errors="backslashreplace")
        told = (name, record.acl_dtype, record.shape, record.nbytes)
        if told != (tensor.name, tensor.acl_dtype, tensor.shape, tensor.nbytes):
            shown = f"{name} (type {record.acl_dtype}, {list(record.shape)}, {record.nbytes} bytes)"
            notes.append(f"MODEL_INOUT_INFO describes {side} {tensor.name} otherwise: {shown}"[:1000])
