"""Protobuf's wire format, walked without trusting a length and without recursion.

A `Message` is a stretch of bytes; its fields are found one after the other, nothing is copied and nothing is decoded
that was not asked for. A field of another wire type than expected is skipped, as every protobuf reader does.
"""

from __future__ import annotations

from collections.abc import Iterator

from .errors import OmError
from .pieces import Budget

__all__ = ["BYTES", "FIXED32", "VARINT", "Message"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_TEXT = 64 << 10
_MOST_DIMS = 128  # ACL's own limit (pyACL reference §14)


class Message:
    """The bytes `start` to `end` of `data`, which lie `base` bytes into the file."""

    __slots__ = ("base", "budget", "data", "end", "start")

    def __init__(self, data: memoryview, base: int, budget: Budget, start: int = 0, end: int | None = None) -> None:
        self.data = data
        self.base = base
        self.budget = budget
        self.start = start
        self.end = len(data) if end is None else end

    def sub(self, start: int, end: int) -> Message:
        """A message inside this one."""
        return Message(self.data, self.base, self.budget, start, end)

    def wrong(self, text: str, at: int) -> OmError:
        """The error of what stands at an index of `data`."""
        return OmError(text, self.base + at)

    def fields(self) -> Iterator[tuple[int, int, int, int]]:
        """(number, wire type, start, end) of every field; of a varint (number, wire type, value, end)."""
        data, at, end = self.data, self.start, self.end
        while at < end:
            tag_at = at
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = self._varint(tag_at, end)
            kind = tag & 7
            if tag < 8:
                raise self.wrong("damaged: a protobuf field of number 0", tag_at)
            if kind == VARINT:
                value, at = self._varint(at, end)
                yield tag >> 3, VARINT, value, at
                continue
            if kind == BYTES:
                length, at = self._varint(at, end)
            elif kind == FIXED32:
                length = 4
            elif kind == FIXED64:
                length = 8
            else:
                raise self.wrong(f"damaged: a protobuf field of wire type {kind}", tag_at)
            if length > end - at:
                raise self.wrong(f"damaged: a protobuf field of {length} bytes where {end - at} are left", tag_at)
            yield tag >> 3, kind, at, at + length
            at += length

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        first = at
        data = self.data
        while True:
            if at >= end:
                raise self.wrong("damaged: a protobuf number is cut short", first)
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, at
            shift += 7
            if shift > 63:
                raise self.wrong("damaged: a protobuf number is longer than 64 bits", first)

    def messages(self, number: int) -> Iterator[Message]:
        """The messages, or texts, of one field."""
        for found, kind, start, end in self.fields():
            if found == number and kind == BYTES:
                yield self.sub(start, end)

    def integers(self, number: int) -> Iterator[int]:
        """The signed numbers of a repeated field, packed or not."""
        for found, kind, start, end in self.fields():
            if found != number:
                continue
            if kind == VARINT:
                yield signed(start)
            elif kind == BYTES:
                while start < end:
                    value, start = self._varint(start, end)
                    yield signed(value)

    def kept_integers(self, number: int, most: int | None = None) -> tuple[int, ...]:
        """The same as a tuple."""
        kept: list[int] = []
        for value in self.integers(number):
            if most is not None and len(kept) == most:
                raise self.wrong(f"damaged: more than {most} numbers where a shape should be", self.start)
            self.budget.take(56, self.base + self.start)
            kept.append(value)
        return tuple(kept)

    def dims(self, number: int) -> tuple[int, ...]:
        """A shape: at most 128 dimensions."""
        return self.kept_integers(number, _MOST_DIMS)

    def raw(self) -> bytes:
        """The bytes themselves; for what is short or not kept."""
        return bytes(self.data[self.start : self.end])

    def text(self) -> str:
        """The bytes as text, kept: bytes that are no UTF-8 as ``\\xNN``, a very long text with an end of ``...``."""
        end = min(self.end, self.start + _LONGEST_TEXT)
        self.budget.take(4 * (end - self.start) + 96, self.base + self.start)
        text = bytes(self.data[self.start : end]).decode(errors="backslashreplace")
        return text if end == self.end else f"{text}..."


def signed(value: int) -> int:
    """A varint as the int64 that it stands for."""
    return value - (1 << 64) if value >> 63 else value
