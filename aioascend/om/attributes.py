"""Attributes: the `map<string, AttrDef>` of models, operators and tensors, and newer files' compressed names.

Only what is asked for is decoded. A compressed name is a number into a table at the model (om-format §5).
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Iterator

from .wire import BYTES, FIXED32, VARINT, Message, signed

__all__ = ["Names", "Value", "attributes", "entries"]

Value = str | int | float | bool | tuple[str, ...] | tuple[int, ...] | tuple[float, ...]

# A number with more digits names no attribute of any file, and its powers would only cost time.
_LONGEST_CODE = 9


class Names:
    """The tables of a model whose attribute names are compressed; empty for any other."""

    def __init__(self) -> None:
        self.compressed = False
        self._names: dict[int, bytes] = {}
        self._by_index: set[int] = set()
        self._values: Message | None = None
        self._where: array[int] | None = None

    @classmethod
    def of(cls, tables: dict[bytes, Message], wanted: Callable[[bytes], bool]) -> Names:
        """Read `attr_name_enum`, `attrs_use_string_value` and `attr_value_enum`; names not `wanted` are left out."""
        self = cls()
        self.compressed = True
        names = tables.get(b"attr_name_enum")
        if names is not None:
            for index, entry in enumerate(_strings(names)):
                if entry.end - entry.start < 64 and wanted(entry.raw()):
                    names.budget.take(200, names.base + entry.start)
                    self._names[index] = entry.raw()
        flags = tables.get(b"attrs_use_string_value")
        if flags is not None:
            for index, flag in enumerate(_list(flags).integers(5)):
                if flag and index in self._names:
                    self._by_index.add(index)
        self._values = tables.get(b"attr_value_enum")
        return self

    def resolve(self, key: bytes) -> tuple[bytes, bool]:
        """The name of a key, and whether its value is a number into the table of values."""
        if not self.compressed or key[:1] != b"\x00" or not 1 < len(key) <= 1 + _LONGEST_CODE:
            return key, False
        index = sum((byte - 1) * 127**place for place, byte in enumerate(key[1:]))
        return self._names.get(index, b""), index in self._by_index

    def value(self, index: int) -> str:
        """One entry of the table of values; empty where it has none."""
        table = self._values
        if table is None:
            return ""
        if self._where is None:
            self._where = array("Q")
            for entry in _strings(table):
                table.budget.take(32, table.base + entry.start)
                self._where.extend((entry.start, entry.end))
        if not 0 <= index < len(self._where) // 2:
            return ""
        return table.sub(self._where[2 * index], self._where[2 * index + 1]).text()


def entries(message: Message, number: int) -> Iterator[tuple[bytes, Message]]:
    """The keys and AttrDefs of a map field; long keys name nothing that is asked for and are left out."""
    for entry in message.messages(number):
        key: Message | None = None
        value: Message | None = None
        for found, kind, start, end in entry.fields():
            if kind == BYTES and found == 1:
                key = message.sub(start, end)
            elif kind == BYTES and found == 2:
                value = message.sub(start, end)
        if key is not None and value is not None and key.end - key.start <= 64:
            yield key.raw(), value


def attributes(message: Message, number: int, names: Names, wanted: Callable[[bytes], bool]) -> dict[str, Value]:
    """The wanted attributes of one map, decoded."""
    found: dict[str, Value] = {}
    for key, value in entries(message, number):
        name, by_index = names.resolve(key)
        if not wanted(name):
            continue
        decoded = _decode(value)
        if by_index and isinstance(decoded, tuple):
            decoded = tuple(names.value(one) for one in decoded if isinstance(one, int))
        elif by_index and isinstance(decoded, int):
            decoded = names.value(decoded)
        if decoded is not None:
            message.budget.take(320, message.base + value.start)
            found[name.decode("latin-1")] = decoded
    return found


def _decode(attribute: Message) -> Value | None:
    """Text, number or list; None for what is neither (tensors, graphs, functions, opaque bytes)."""
    value: Value | None = None
    for number, kind, start, end in attribute.fields():
        if number == 1 and kind == BYTES:
            value = _decode_list(attribute.sub(start, end))
        elif number == 2 and kind == BYTES:
            value = attribute.sub(start, end).text()
        elif number in (3, 15) and kind == VARINT:
            value = signed(start)
        elif number == 4 and kind == FIXED32:
            value = _float(attribute, start)
        elif number == 5 and kind == VARINT:
            value = bool(start)
    return value


def _decode_list(values: Message) -> Value:
    texts = tuple(text.text() for text in values.messages(2))
    if texts:
        return texts
    return values.kept_integers(3) or values.kept_integers(5)


def _float(message: Message, start: int) -> float | None:
    """The number; None for NaN and the infinities, which JSON has not and no model needs."""
    value: float = struct.unpack_from("<f", message.data, start)[0]
    return value if math.isfinite(value) else None


def _list(attribute: Message) -> Message:
    """The list inside an AttrDef; an empty message where it has none."""
    for found in attribute.messages(1):
        return found
    return attribute.sub(attribute.start, attribute.start)


def _strings(attribute: Message) -> Iterator[Message]:
    return _list(attribute).messages(2)
