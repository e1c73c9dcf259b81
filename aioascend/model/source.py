"""Where a model comes from: a file or bytes, an offline model (`.om`) or an ONNX graph."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..driver.codes import describe
from ..errors import InvalidInput, ModelLoadError
from ..om import first_bytes

__all__ = ["ModelSource", "open_source"]

_OM_MAGIC = b"IMOD"
_ONNX_STARTS = (b"\x08", b"AIOASCEND")
_START = 9
# What the driver would answer (pyACL reference §15).
_PATH_INVALID, _SIZE_INVALID = 145002, 145006


@dataclass(frozen=True)
class ModelSource:
    """A model to load: its display name, and a path or the bytes themselves.

    Where both are there, the bytes are what is loaded: what the emulator made of the file.
    """

    name: str
    path: str | None
    data: bytes | bytearray | memoryview | None
    is_om: bool
    stamp: tuple[int, int] | None = None  # size and time of the file's last change
    foreign: bool = False  # it begins neither as an .om nor as an .onnx or what the emulator compiles one to

    @property
    def where(self) -> str:
        """How load errors call it."""
        return self.path or self.name

    def check_unchanged(self) -> None:
        """Raise `ModelLoadError` if the file is not the one that was looked at first."""
        if self.path is None or self.stamp is None:
            return
        now = _stamp(self.path)
        if now != self.stamp:
            raise ModelLoadError(
                f"the file {self.path} has changed since the session was opened ({self.stamp[0]} bytes then, {now[0]} "
                "now, or another time of change), so that the model cannot be loaded again: open a new session",
                path=self.path,
            )


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise _refused(f"cannot read the model {path} again: {error.strerror or error}", path, _PATH_INVALID) from None
    return found.st_size, found.st_mtime_ns


def open_source(model: str | os.PathLike[str] | bytes | bytearray | memoryview) -> ModelSource:
    """Look at a model's first bytes; raises `ModelLoadError` for a file that is missing, empty or unreadable."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        if not len(model):
            raise _refused("the model's bytes are empty; wanted an .om or .onnx model", None, _SIZE_INVALID)
        view = memoryview(model)
        if not view.contiguous:
            raise InvalidInput("model: wanted contiguous bytes, given a memoryview with steps")
        start = bytes(view.cast("B")[:_START])
        is_om = start.startswith(_OM_MAGIC)
        foreign = not is_om and not start.startswith(_ONNX_STARTS)
        return ModelSource(f"<{view.nbytes} bytes>", None, model, is_om, foreign=foreign)
    try:
        path = os.fspath(model)
    except TypeError:
        raise InvalidInput(f"model: wanted a path or bytes, given {type(model).__name__}") from None
    if not isinstance(path, str):
        raise InvalidInput(f"model: wanted a path as text, given {type(path).__name__}")
    try:
        start = first_bytes(path, _START)
    except OSError as error:
        raise _refused(f"cannot read the model {path}: {error.strerror or error}", path, _PATH_INVALID) from None
    except ValueError as error:
        raise _refused(f"cannot read the model {path!r}: {error}", path, _PATH_INVALID) from None
    if not start:
        raise _refused(f"the model {path} is empty; wanted an .om or .onnx model", path, _SIZE_INVALID)
    path = os.path.abspath(path)
    is_om = start.startswith(_OM_MAGIC)
    foreign = not is_om and not start.startswith(_ONNX_STARTS)
    return ModelSource(os.path.basename(path), path, None, is_om, _stamp(path), foreign)


def _refused(text: str, path: str | None, code: int) -> ModelLoadError:
    name = describe(code).name
    return ModelLoadError(f"{text} ({code} {name})", path=path, code=code, name=name)
