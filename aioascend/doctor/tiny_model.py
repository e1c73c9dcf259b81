"""A model of one operator, for the emulator: y = max(x, 0) on four floats, written as protobuf by hand."""

from __future__ import annotations

__all__ = ["tiny_model"]


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3, value])


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2, len(value)]) + value


def _tensor(name: bytes) -> bytes:
    """ValueInfoProto: a name and the type float32[4]."""
    shape = _bytes(1, _number(1, 4))
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, 1) + _bytes(2, shape)))


def tiny_model() -> bytes:
    """The bytes of the `.onnx` file."""
    node = _bytes(1, b"x") + _bytes(2, b"y") + _bytes(4, b"Relu")
    graph = _bytes(1, node) + _bytes(2, b"tiny") + _bytes(11, _tensor(b"x")) + _bytes(12, _tensor(b"y"))
    return _number(1, 8) + _bytes(7, graph) + _bytes(8, _number(2, 17))
