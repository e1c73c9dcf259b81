"""Reading stretches of a model file, and the limit of what is kept of it.

A file is read with `pread`, never mapped: a mapped file that another process cuts short kills its reader. What is read
is a section at a time, never the weights.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import PATH_INVALID, OmError

__all__ = ["Budget", "Pieces", "first_bytes", "open_file", "opened"]

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
        # In one place from the start: to join what came in pieces would take the memory twice.
        whole = memoryview(bytearray(length))
        done = 0
        while done < length:
            count = os.preadv(self.file, [whole[done : done + (1 << 30)]], at + done)
            if not count:
                raise OmError("the file became shorter while it was read", at + done)
            done += count
        return whole.toreadonly()

    def within(self, offset: int, size: int) -> Pieces:
        """The model that lies inside this one."""
        return Pieces(size, self.start + offset, self.file, self.memory)


def open_file(path: str | os.PathLike[str]) -> int:
    """A descriptor of a regular file; `OSError` for anything else, at once: nobody waits for a pipe's writer."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory; a file was wanted", os.fspath(path))
    raise OSError(errno.EINVAL, "it is not a regular file; a file was wanted", os.fspath(path))


def first_bytes(path: str | os.PathLike[str], count: int) -> bytes:
    """The first bytes of a regular file, by which its kind is told; raises what `open_file` raises."""
    file = open_file(path)
    try:
        return os.pread(file, count, 0)
    finally:
        os.close(file)


@contextlib.contextmanager
def opened(model: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Iterator[Pieces]:
    """The pieces of a path or of bytes; `OmError` for what cannot be read or is no file."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        view = memoryview(model).cast("B")
        yield Pieces(len(view), 0, -1, view)
        return
    try:
        file = open_file(model)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise OmError(f"the file cannot be read: {reason}", code=PATH_INVALID) from None
    try:
        try:
            yield Pieces(os.fstat(file).st_size, 0, file, None)
        except OSError as error:
            raise OmError(f"the file cannot be read: {error.strerror or error}", code=PATH_INVALID) from None
    finally:
        os.close(file)
