"""Model sources: where the bytes of a model are, and the small "offline model" that `compile` makes of an .onnx.

An offline model is ``MAGIC``, eight bytes of header length, a JSON header, and the embedded .onnx if it came as bytes.
The header holds the path (with size and time stamp) instead where there is one, so that a big model is not copied.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import om
from . import codes
from .args import Failure
from .memory import move_released

MAGIC = b"AIOASCEND-EMULATED-MODEL\x00"
OM_MAGIC = b"IMOD"
_CHUNK = 8 << 20


@dataclass
class Source:
    """The bytes of an .onnx file and what is known about it.

    `path` is None when it came from memory. `inputs` and `outputs` are the fixed shapes of an offline model, None for
    a plain .onnx. `is_om`: it is a real offline model, compiled for an NPU, of which the emulator makes a dry run if
    `dry_run` or its `Config` says so.
    """

    data: memoryview
    path: str | None
    inputs: dict[str, tuple[int, ...]] | None = None
    outputs: dict[str, tuple[int, ...]] | None = None
    gears: dict[str, Any] | None = None
    keep: list[Any] = field(default_factory=list)
    is_om: bool = False
    dry_run: bool = False

    @property
    def where(self) -> str:
        """How messages call it."""
        return f"{self.path!r}" if self.path is not None else f"the model given as {len(self.data)} bytes"


def from_path(path: str) -> Source:
    """Map a file: an .onnx or an offline model, whatever its name."""
    try:
        with open(om.open_file(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise Failure(codes.MODEL_SIZE_INVALID, f"{path!r} is empty")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        code = codes.GE_MODEL_PATH_INVALID if isinstance(error, FileNotFoundError) else codes.INVALID_FILE
        raise Failure(code, f"cannot read {path!r}: {error.strerror or error}") from None
    source = Source(memoryview(mapped), os.path.abspath(path))
    return _opened(source)


def from_memory(address: int, size: int) -> Source:
    """A model in host memory. The bytes are not copied: they must stay until the model is loaded."""
    if size <= 0:
        raise Failure(codes.MODEL_SIZE_INVALID, f"a model of {size} bytes")
    array = (ctypes.c_char * size).from_address(address)
    return _opened(Source(memoryview(array).cast("B"), None))


def from_bytes(data: bytes) -> Source:
    """A model in a bytes-like object."""
    if len(data) == 0:
        raise Failure(codes.MODEL_SIZE_INVALID, "the model has 0 bytes")
    return _opened(Source(memoryview(data).cast("B"), None))


def _opened(source: Source) -> Source:
    data = source.data
    if bytes(data[:4]) == OM_MAGIC:
        source.is_om = True
        return source
    if bytes(data[: len(MAGIC)]) != MAGIC:
        return source
    at = len(MAGIC)
    length = int.from_bytes(data[at : at + 8], "little")
    at += 8
    if len(data) < at or length > len(data) - at:
        raise Failure(codes.MODEL_SIZE_INVALID, f"{source.where} is a truncated offline model")
    try:
        header = json.loads(bytes(data[at : at + length]))
        inputs = {str(name): tuple(int(size) for size in shape) for name, shape in header["inputs"].items()}
        outputs = {str(name): tuple(int(size) for size in shape) for name, shape in header["outputs"].items()}
        path, size, stamp = header["path"], int(header["size"]), header["mtime_ns"]
        gears, dry_run = header.get("gears"), bool(header.get("dry_run"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(codes.MODEL_MISSING_ATTR, f"{source.where} is a damaged offline model: {error!r}") from None
    if path is None:
        if len(data) - at - length != size:
            raise Failure(codes.MODEL_SIZE_INVALID, f"{source.where} is a truncated offline model")
        body = data[at + length :]
        return Source(body, None, inputs, outputs, gears, [source], bytes(body[:4]) == OM_MAGIC, dry_run)
    model = from_path(str(path))
    status = os.stat(path)
    if status.st_size != size or status.st_mtime_ns != stamp:
        raise Failure(codes.READ_MODEL_FAILURE, f"{path!r} has changed since it was compiled")
    return Source(model.data, model.path, inputs, outputs, gears, [model], model.is_om, dry_run)


def write_offline(
    source: Source,
    inputs: dict[str, tuple[int, ...]],
    outputs: dict[str, tuple[int, ...]],
    gears: dict[str, Any] | None = None,
    dry_run: bool = False,
) -> bytes:
    """The bytes of the offline model."""
    stamp = os.stat(source.path).st_mtime_ns if source.path is not None else None
    header = json.dumps(
        {
            "path": source.path,
            "size": len(source.data),
            "mtime_ns": stamp,
            "inputs": inputs,
            "outputs": outputs,
            "gears": gears,
            "dry_run": dry_run,
        }
    ).encode()
    head = MAGIC + len(header).to_bytes(8, "little") + header
    if source.path is not None:
        return head
    return _join(head, source.data)


def _join(head: bytes, body: memoryview) -> bytes:
    """``head + body`` without holding the GIL for the length of a big model."""
    new = ctypes.pythonapi.PyBytes_FromStringAndSize
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
    # a bytes object that nobody has seen yet may be filled
    joined: bytes = new(None, len(head) + len(body))
    address = address_of(joined)
    move_released(address, address_of(head), len(head))
    body_address, alive = address_of_view(body)
    move_released(address + len(head), body_address, len(body))
    del alive
    return joined


def address_of(data: bytes) -> int:
    """Address of a bytes object's own storage."""
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert address is not None
    return address


def address_of_view(view: memoryview) -> tuple[int, Any]:
    """Address of a contiguous view, and what has to be kept while it is used."""
    import numpy

    array = numpy.frombuffer(view, dtype=numpy.uint8)
    return int(array.ctypes.data), array


class ModelFile:
    """An anonymous file with these bytes, for ONNX Runtime to open by `path`.

    A session made from a bytes object holds the GIL while it parses them, one made from a path does not. Writing
    happens in large chunks, each with the GIL released.
    """

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._fd = -1
        self._temporary: str | None = None
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("aioascend-model", os.MFD_CLOEXEC)
            self.path = f"/proc/self/fd/{self._fd}"
        else:
            self._fd, self.path = tempfile.mkstemp(suffix=".onnx")
            self._temporary = self.path
        try:
            for piece in pieces:
                at = 0
                while at < len(piece):
                    at += os.write(self._fd, piece[at : at + _CHUNK])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the file back; a session that has read it does not need it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._temporary is not None:
            os.unlink(self._temporary)
            self._temporary = None

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
