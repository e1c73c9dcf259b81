"""A file that cannot be read is one line that says what is wrong and where."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from pathlib import Path

import pytest

from aioascend import om

from . import fuzz, real, writer
from .writer import File, simple


def message(data: bytes) -> str:
    with pytest.raises(om.OmError) as caught:
        om.read(data)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "data, text",
    [
        (b"", "at byte 0: the file is empty"),
        (b"IMOD", "at byte 4: cut short: the file has 4 bytes, the header alone has 256"),
        (b"PK\x03\x04" + bytes(300), "ZIP archive"),
        (b"PICO" + bytes(300), "SVP/PICO"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        (b"\x08\x07" + bytes(300), ".onnx"),
        (bytes(4096), "begins with zeros"),
        (random.Random(1).randbytes(4096), "at byte 0: it is no offline model: it begins with 22 a2 a3 44"),
    ],
)
def test_what_is_no_offline_model_is_told(data: bytes, text: str) -> None:
    if "22 a2" in text:
        text = f"it begins with {data[:4].hex(' ')}"
    assert text in message(data)


@pytest.mark.parametrize(
    "changes, where, text",
    [
        ({4: struct.pack("<I", 64)}, 4, "the header says that it has 64 bytes"),
        ({8: struct.pack("<I", 7)}, 8, "the header has version 0x7"),
        ({184: struct.pack("<Q", 1 << 40)}, 184, "cut short: the header says that 1099511627776 bytes follow"),
        ({184: struct.pack("<Q", 5)}, 184, "damaged: the header says that 5 bytes follow it"),
        ({156: struct.pack("<I", 0)}, 156, "0 models"),
        ({156: struct.pack("<I", 0xFFFFFFFF)}, None, "partition table of model 1 of 4294967295"),
    ],
)
def test_a_damaged_header_is_told_with_its_place(changes: dict[int, bytes], where: int | None, text: str) -> None:
    told = message(simple(changes=changes))
    assert text in told
    assert where is None or told.startswith(f"at byte {where}: ")


def test_a_table_that_promises_too_much_is_told() -> None:
    data = bytearray(simple())
    struct.pack_into("<I", data, 256, 0xFFFFFFFF)
    assert "says that it has 4294967295 partitions" in message(bytes(data))
    data = bytearray(simple())
    struct.pack_into("<Q", data, 256 + 8 + 16, 1 << 60)
    assert "MODEL_DEF has 1152921504606846976 bytes by the partition table" in message(bytes(data))


def test_half_a_file_says_how_much_is_missing() -> None:
    data = simple()
    assert f"({len(data) - len(data) // 2} are missing)" in message(data[: len(data) // 2])


def test_bytes_after_the_last_section_are_told() -> None:
    data = bytearray(simple() + b"more")
    struct.pack_into("<Q", data, 184, len(data) - 256)
    assert f"at byte {len(data) - 4}: damaged: 4 bytes follow the last section" in message(bytes(data))


def test_a_file_without_a_definition_is_told() -> None:
    assert "there is no MODEL_DEF" in message(bytes(File([[(writer.WEIGHTS, b"w"), (writer.TASK_INFO, b"")]])))


@pytest.mark.parametrize("name", ["hiai_relu.om", "written", "geared"])
def test_a_small_file_cut_at_every_length_is_refused_with_one_line(name: str) -> None:
    whole = {"written": simple, "geared": lambda: writer.geared("hw")}.get(name, lambda: real.path(name).read_bytes())()
    for length in range(len(whole)):
        assert message(whole[:length]).startswith("at byte ")


@pytest.mark.parametrize("name", real.NAMES)
def test_a_section_cut_at_every_length_inside_a_whole_header_is_refused(name: str) -> None:
    # The header's length is mended, so that the cut is met by the tables and not by it.
    whole = real.path(name).read_bytes()
    for length in sorted({*range(256, min(len(whole), 800)), *range(256, len(whole), max(1, len(whole) // 150))}):
        data = bytearray(whole[:length])
        struct.pack_into("<I", data, 76, length - 256)
        assert message(bytes(data)).startswith("at byte ")


def test_what_is_no_file_is_told_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, text in (
        (tmp_path / "missing.om", "No such file"),
        (tmp_path, "a directory"),
        (tmp_path / "pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (f"{tmp_path}/\0", "null"),
    ):
        with pytest.raises(om.OmError, match=text) as caught:
            om.read(path)
        assert caught.value.code == 145002


def test_a_section_larger_than_a_protobuf_message_can_be_is_refused_unread(tmp_path: Path) -> None:
    size = 3 << 30
    table = struct.pack("<IIIIQQ", 1, 0, writer.MODEL_DEF, 0, 0, size)
    path = tmp_path / "sparse.om"
    path.write_bytes(bytes(File([], models=1))[:184] + struct.pack("<Q", len(table) + size) + bytes(64) + table)
    os.truncate(path, 256 + len(table) + size)
    tracemalloc.start()
    try:
        with pytest.raises(om.OmError, match="MODEL_DEF has 3221225472 bytes; a protobuf message has at most"):
            om.read(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


HOSTILE = {
    "operators without a byte": lambda: simple([b""] * 60_000),
    "a type for each operator": lambda: simple([writer.chunk(2, str(index)) for index in range(60_000)]),
    "inputs without end": lambda: simple([writer.data("", None, 1, [])] * 20_000),
    "graphs without end": lambda: bytes(File([[(0, writer.definition([b""] * 80_000)), (2, b"")]])),
    "dimensions without end": lambda: simple([writer.data("x", 0, 1, [1 << 62] * 50_000)]),
    "a long name": lambda: simple([writer.data("x" * 3_000_000, 0, 1, [1])]),
    "a long key": lambda: simple([writer.data("x", 0, 1, [1], attrs={b"\x00" + b"\x7f" * 2_000_000: 1})], {
        "om_compress_version": 1, "attr_name_enum": ["index"], "attrs_use_string_value": [False],
    }),
    "a table of names without end": lambda: simple([writer.data("x", 0, 1, [1])], {
        "om_compress_version": 1, "attr_name_enum": ["index"] * 80_000, "attrs_use_string_value": [True] * 80_000,
        "attr_value_enum": [""] * 80_000,
    }),
    "many looks into a table of values": lambda: simple(
        [writer.data("x", 0, 1, [1], attrs={b"\x00\x01": list(range(20_000))})], {
        "om_compress_version": 1, "attr_name_enum": ["_data_related_aipp_mode"], "attrs_use_string_value": [True],
        "attr_value_enum": ["v"] * 100_000,
    }),
    "attributes nested without end": lambda: simple([writer.data("x", 0, 1, [1], attrs={}) + nested(20_000)]),
    "gears without end": lambda: simple([writer.operator("case", "Case", attrs={
        "_batch_num": 1 << 62, **{f"_pred_value_{index}": [1] for index in range(40_000)}})]),
    "models without end": lambda: bytes(File([[(0, b"")]] * 40_000, wide=False, unknown=1)),
    "output shapes without end": lambda: simple([writer.net_output([], [], {
        "_dynamic_output_dims": ["1," * 100_000, "9" * 100_000, *("0,0,1",) * 30_000]})]),
}  # fmt: skip


def nested(depth: int) -> bytes:
    """Graphs in attributes of operators in graphs in attributes ..."""
    data = b""
    for _ in range(depth):
        data = writer.chunk(10, writer.chunk(1, "g") + writer.chunk(2, writer.chunk(13, writer.chunk(6, data))))
    return data


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_made_to_hurt_costs_no_more_memory_or_time_than_its_size(kind: str) -> None:
    outcome = fuzz.read_watched(HOSTILE[kind]())
    assert outcome.problem == ""


def test_mutated_files_are_read_or_refused_with_one_line() -> None:
    """Quick ones, which make ten thousand with those below; `python -m tests.om.fuzz` runs as many as are wanted."""
    assert fuzz.run(1500, seed=20240) == []


@pytest.mark.slow
def test_thousands_more_are_read_or_refused_with_one_line() -> None:
    assert fuzz.run(8500, seed=1) == []
