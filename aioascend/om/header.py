"""The first 256 bytes of an offline model (om-format §2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .errors import OmError

__all__ = ["HEADER_SIZE", "Header", "foreign", "read_header"]

MAGIC = b"IMOD"
HEADER_SIZE = 256
V1, V2 = 0x10000000, 0x20000000
FLOW, LITE, BUNDLE = 3, 4, 5

_COMMON = struct.Struct("<4sII64sIBBBB32sI32sI")
_V1 = struct.Struct("<20sB3xII")
_V2 = struct.Struct("<I20sB3xQBB")

_KINDS = {0: "executable", 1: "standard", 2: "tiny", FLOW: "flow", LITE: "lite", BUNDLE: "bundle"}


@dataclass(frozen=True)
class Header:
    """The header's fields under the names of the format's description; those that a version has not are 0."""

    headsize: int
    version: int
    length: int
    is_encrypt: int
    is_checksum: int
    modeltype: int
    genmode: int
    name: str
    ops: int
    om_ir_version: int
    model_num: int
    platform_version: str
    platform_type: int
    model_length: int = 0
    need_check_os_cpu_info: int = 0
    is_unknow_model: int = 0
    custom_data_len: int = 0
    multi_shape_gears: int = 0

    @property
    def wide(self) -> bool:
        """Whether the partition tables have 64-bit numbers (om-format §3)."""
        return self.version >= V2 and (self.modeltype == FLOW or self.model_length != 0)

    @property
    def body(self) -> int:
        """Bytes after the header, as the header says."""
        return self.model_length or self.length

    @property
    def dynamic_shape(self) -> bool:
        """Whether the model takes any shape in a range. A model with gears does not."""
        return self.version >= V2 and (self.model_num > 1 or self.is_unknow_model == 1)

    @property
    def bundle(self) -> bool:
        """Whether it holds whole offline models."""
        return self.version >= V2 and self.modeltype == BUNDLE

    @property
    def phone(self) -> bool:
        """Whether the header is that of a HiAI model for Kirin phones (om-format §10)."""
        return self.version < V2 and (self.modeltype != 0 or self.platform_version.startswith("3."))

    @property
    def kind(self) -> str:
        """What the model type means."""
        return "phone" if self.phone else _KINDS.get(self.modeltype, f"type {self.modeltype}")


def read_header(data: memoryview, size: int, base: int = 0) -> Header:
    """Decode the header of a model of `size` bytes at byte `base`; `data` is its beginning, up to 256 bytes."""
    if size == 0:
        raise OmError("there are 0 bytes where a model should be" if base else "the file is empty", base)
    if bytes(data[:4]) != MAGIC:
        raise OmError(foreign(bytes(data[:16])), base)
    if size < HEADER_SIZE:
        raise OmError(f"cut short: the file has {size} bytes, the header alone has {HEADER_SIZE}", base + size)
    (_, headsize, version, _, length, encrypted, checksum, kind, mode, name, ops, _, ir) = _COMMON.unpack_from(data)
    if headsize != HEADER_SIZE:
        raise OmError(f"damaged: the header says that it has {headsize} bytes, {HEADER_SIZE} were wanted", base + 4)
    if not V1 <= version < 0x80000000:
        raise OmError(f"damaged: the header has version {version:#x}; {V1:#x} and {V2:#x} are known", base + 8)
    common = (headsize, version, length, encrypted, checksum, kind, mode, _text(name), ops, ir)
    if version < V2:
        platform, platform_type, custom, gears = _V1.unpack_from(data, 156)
        header = Header(*common, 1, _text(platform), platform_type, custom_data_len=custom, multi_shape_gears=gears)
    else:
        models, platform, platform_type, model_length, check, unknown = _V2.unpack_from(data, 156)
        header = Header(*common, models, _text(platform), platform_type, model_length, check, unknown)
    _check_length(header, size, base)
    return header


def _check_length(header: Header, size: int, base: int) -> None:
    where = base + (184 if header.model_length else 76)
    given, wanted = size - HEADER_SIZE, header.body
    if header.bundle and header.model_length == size:
        return  # a bundle's writer counts the header too
    if given < wanted:
        raise OmError(
            f"cut short: the header says that {wanted} bytes follow it, the file has {given} there "
            f"({wanted - given} are missing)",
            where,
        )
    if given > wanted:
        raise OmError(f"damaged: the header says that {wanted} bytes follow it, the file has {given} there", where)


def foreign(start: bytes) -> str:
    """What a file is, by its first bytes, that does not begin as an offline model."""
    for magic, what in (
        (b"PK\x03\x04", 'it is a ZIP archive: "OM2", the format of 2026 CANN releases, which is not read yet'),
        (b"PICO", "it is a model for SVP/PICO cores, another format"),
        (b"version https://", "it is a Git LFS pointer, not the model: run `git lfs pull`"),
        (b"\x08", "it begins as an .onnx file does, not as an offline model (IMOD)"),
    ):
        if start.startswith(magic):
            return what
    if not start.strip(b"\x00"):
        return "it begins with zeros, not as an offline model (IMOD): perhaps a download that was not finished"
    return f"it is no offline model: it begins with {start[:4].hex(' ')}, not with 49 4d 4f 44 (IMOD)"


def _text(data: bytes) -> str:
    return data.split(b"\x00", 1)[0].decode(errors="backslashreplace")
