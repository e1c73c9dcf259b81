"""A C library for tests, with every function of the reference's prototypes: it notes what it is called with."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aioascend.driver import Backend, Driver

FOLDER = Path(__file__).parent


def compile_library(path: Path, *lacks: str) -> Path:
    """Compile the library to `path`, without the functions in `lacks`; skips the test where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: neither cc nor gcc is on the PATH")
    path.parent.mkdir(parents=True, exist_ok=True)
    options = [f"-DLACKS_{name}" for name in lacks]
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *options, "-o", str(path)]
    subprocess.run([*command, str(FOLDER / "ascendcl.c")], check=True, timeout=120)
    return path


class CLibrary:
    """The library at `path`, loaded: what its functions answer, and what the last call of one was given."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = library = ctypes.CDLL(str(path))
        library.stub_number.restype = ctypes.c_uint64
        library.stub_called.restype = library.stub_text.restype = ctypes.c_char_p
        library.stub_answer.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64)
        library.stub_message.argtypes = (ctypes.c_char_p,)
        self.answer()
        self.message(None)

    def address(self, name: str) -> int:
        """The address of a function, 0 where it was left out: what `acl.__native__` gives."""
        try:
            return ctypes.cast(self._library[name], ctypes.c_void_p).value or 0
        except AttributeError:
            return 0

    def answer(self, code: int = 0, results: tuple[int, ...] = (), seconds: float = 0.0) -> None:
        """From now on return `code`, write `results` through the out-pointers, and take so long."""
        first, second = (*results, 0, 0)[:2]
        self._library.stub_answer(code, first, second, int(seconds * 1e9))

    def message(self, text: bytes | None) -> None:
        """What aclGetRecentErrMsg gives from now on."""
        self._library.stub_message(text)

    @property
    def calls(self) -> int:
        """How many calls there were, aclGetRecentErrMsg not counted."""
        return int(self._library.stub_calls())

    @property
    def called(self) -> str:
        """The function that was called last."""
        return bytes(self._library.stub_called()).decode()

    @property
    def numbers(self) -> list[int]:
        """Its arguments that are no out-pointers and no texts, sign-extended to 64 bits."""
        return [int(self._library.stub_number(index)) for index in range(self._library.stub_count())]

    @property
    def text(self) -> bytes | None:
        """Its argument that is a text."""
        given: bytes | None = self._library.stub_text()
        return given

    def driver(self, acl: ModuleType | None = None) -> Driver:
        """A driver whose C library this is; a call that it makes through pyACL fails the test."""
        if acl is None:
            acl = ModuleType("acl")
            acl.rt = acl.mdl = _Untouched()  # type: ignore[attr-defined]
        acl.__native__ = self  # type: ignore[attr-defined]
        return Driver(Backend("npu", acl), "npu:0")


class _Untouched:
    def __getattr__(self, name: str) -> Any:
        if name in ("synchronize_stream_with_timeout", "synchronize_event_with_timeout", "create_event_ex_with_flag"):
            raise AttributeError(name)
        raise AssertionError(f"{name} was called through pyACL")
