"""Reading stretches of a model file, and the limit of what is kept of it.

A file is read with `pread`, never mapped: a mapped file that another process cuts short kills its reader. What is read
is a section at a time, never the weights.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import PATH_INVALID, OmError

__all__ = ["Budget", "Pieces", "opened"]

_FLOOR = 512 << 10


class Budget:
    """How much may be kept of a file: as much as the file is long, and half a MiB for small ones.

    A few bytes of protobuf become objects of a hundred; without a limit a file of empty operators would fill the
    memory.
    """

    def __init__(self, size: int) -> None:
        self._left = size + _FLOOR

    def take(self, nbytes: int, offset: int) -> None:
        """Keep about this much more."""
        self._left -= nbytes
        if self._left < 0:
            raise OmError("more names, tensors and numbers than a model of this size has", offset)


@dataclass(frozen=True)
class Pieces:
    """A model in a file, or in memory, or one that lies inside another: `start` is its first byte there."""

    size: int
    start: int
    file: int
    memory: memoryview | None

    def read(self, offset: int, length: int) -> memoryview:
        """`length` bytes from `offset`; the caller has compared both with `size`."""
        at = self.start + offset
        if self.memory is not None:
            return self.memory[at : at + length]
        parts: list[bytes] = []
        left = length
        while left:
            part = os.pread(self.file, min(left, 1 << 30), at + length - left)
            if not part:
                raise OmError("the file became shorter while it was read", at + length - left)
            parts.append(part)
            left -= len(part)
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def within(self, offset: int, size: int) -> Pieces:
        """The model that lies inside this one."""
        return Pieces(size, self.start + offset, self.file, self.memory)


@contextlib.contextmanager
def opened(model: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Iterator[Pieces]:
    """The pieces of a path or of bytes; `OmError` for what cannot be read or is no file."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        view = memoryview(model).cast("B")
        yield Pieces(len(view), 0, -1, view)
        return
    try:
        # Not to wait for a pipe's writer.
        file = os.open(model, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise OmError(f"the file cannot be read: {reason}", code=PATH_INVALID) from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise OmError(f"it is {what}; a file was wanted", code=PATH_INVALID)
        try:
            yield Pieces(status.st_size, 0, file, None)
        except OSError as error:
            raise OmError(f"the file cannot be read: {error.strerror or error}", code=PATH_INVALID) from None
    finally:
        os.close(file)
