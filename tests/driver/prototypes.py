"""The C prototypes that may be called directly, read from the header that the stub library is compiled from."""

from __future__ import annotations

import re
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADER = Path(__file__).parent / "c_library" / "ascendcl.h"

CTYPES: dict[str, Any] = {
    "const char *": c_char_p,
    "int": c_int,
    "int32_t": c_int32,
    "size_t": c_size_t,
    "uint32_t": c_uint32,
    "uint64_t": c_uint64,
    "void *": c_void_p,
    "const void *": c_void_p,
    "void **": POINTER(c_void_p),
    "size_t *": POINTER(c_size_t),
    "uint32_t *": POINTER(c_uint32),
}
RESULTS: dict[str, Any] = {"aclError": c_int, "const char *": c_char_p}
OUTPUTS = {"void **": "c_void_p", "size_t *": "c_size_t", "uint32_t *": "c_uint32"}


@dataclass(frozen=True)
class Prototype:
    """One C function: its result, and type and name of each argument."""

    result: str
    arguments: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"takes ({', '.join(kind for kind, _ in self.arguments)})"


def read_arguments(text: str) -> tuple[tuple[str, str], ...]:
    """Read `void **ptr, size_t size` as (type, name) pairs."""
    pairs = []
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"(.*?[\s*])(\w+)", part)
        assert match, part
        pairs.append((re.sub(r"\s+", " ", match[1]).strip(), match[2]))
    return tuple(pairs)


def read_header(text: str) -> dict[str, Prototype]:
    """Read the declarations of a header."""
    found = {}
    for result, name, arguments in re.findall(r"^(aclError|const char \*)\s*(acl\w+)\(([^)]*)\);$", text, re.MULTILINE):
        found[name] = Prototype(result, () if arguments == "void" else read_arguments(arguments))
    return found


PROTOTYPES = read_header(HEADER.read_text(encoding="utf-8"))
