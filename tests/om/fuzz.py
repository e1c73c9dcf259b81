"""Mutated offline models: none may crash the reader, hang it, or make it allocate more than twice the file's size.

    python -m tests.om.fuzz --count 10000 --seed 1

Mutations aim at what a reader trusts: fields of the header, partition tables, lengths and numbers of the protobuf; the
rest are flipped bytes, cuts, and stretches that are doubled, zeroed or exchanged. The same seed gives the same files.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from aioascend import om
from aioascend.cli.om_report import report

from . import real, writer

# What reading takes beside twice the file's size: half a MiB that may always be kept, and Python's own rounding.
FLOOR = 1 << 20
# Of processor time, for a file of a few hundred KiB that takes milliseconds: a hang, not slowness.
SECONDS = 10.0
_LONGEST_LINE = 2000


@dataclass(frozen=True)
class Outcome:
    """How one file went: `ended` says how, `problem` is empty if that is right."""

    ended: str
    problem: str


def read_watched(data: bytes) -> Outcome:
    """Read a file, watch memory and time, and print it in every form if it can be read."""
    begin = time.process_time()
    tracemalloc.start()
    try:
        ended, problem, file = _read(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    spent = time.process_time() - begin
    if not problem and peak > 2 * len(data) + FLOOR:
        problem = f"{peak} bytes were allocated for a file of {len(data)}"
    if not problem and spent > SECONDS:
        problem = f"{spent:.1f} s were spent on a file of {len(data)} bytes"
    if not problem and file is not None:
        problem = _show(file)
    return Outcome(ended, problem)


def _read(data: bytes) -> tuple[str, str, om.OmFile | None]:
    try:
        file = om.read(data)
    except om.OmError as error:
        text = str(error)
        fine = text and "\n" not in text and len(text) < _LONGEST_LINE and text.startswith("at byte ")
        return _sort_of(text), "" if fine else f"no clear line: {text!r}", None
    except BaseException as error:
        return type(error).__name__, f"{type(error).__name__}: {error}", None
    return "read", "", file


def _sort_of(text: str) -> str:
    """A message without its numbers."""
    return " ".join("N" if any(letter.isdigit() for letter in word) else word for word in text.split())[:90]


def _show(file: om.OmFile) -> str:
    try:
        report("model.om", file)
        json.dumps(om.as_json(file))
        om.compare(file, file)
    except Exception as error:
        return f"shown: {type(error).__name__}: {error}"
    return ""


# -- mutations -----------------------------------------------------------------------------------------------------


def seeds() -> list[bytes]:
    """Whole files: the real ones that are there, and one written for each thing that they lack."""
    files = [(real.FOLDER / name).read_bytes() for name in real.NAMES if (real.FOLDER / name).exists()]
    picture = writer.data("x", 0, writer.UINT8, [1, 3, 8, 8], "NCHW", 192, {"_data_related_aipp_mode": "static_aipp"})
    files += [
        writer.simple(),
        writer.simple(version=writer.V1),
        writer.simple(wide=False),
        *(writer.geared(kind) for kind in ("batch", "hw", "dims")),
        writer.simple([picture, writer.net_output([], [])]),
        writer.simple(
            [writer.data("x", None, 1, [4], attrs={b"\x00\x01": 0}), writer.net_output([], [])],
            {
                "om_compress_version": 1,
                "attr_name_enum": ["index", "input_dims"],
                "attr_value_enum": ["a", "b"],
                "attrs_use_string_value": [False, True],
            },
        ),
        bytes(writer.File([[(0, writer.definition([])), (2, writer.tasks())]] * 3)),
        writer.bundle([writer.simple(), writer.geared("batch")]),
        writer.simple(encrypted=1),
        bytes(
            writer.File(
                [
                    [
                        (writer.INOUT, writer.inout([writer.inout_record(4, 2, 0, "x", [1])], [])),
                        (writer.MODEL_DEF, writer.definition([])),
                    ]
                ]
            )
        ),
    ]
    return files


_EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_HEADER_FIELDS = (
    (0, 4),
    (4, 4),
    (8, 4),
    (76, 4),
    (80, 1),
    (82, 1),
    (84, 8),
    (152, 4),
    (156, 4),
    (160, 8),
    (176, 4),
    (184, 8),
    (192, 1),
    (193, 1),
)
_LAYOUTS = (0x10000000, 0x20000000)


def _number(generator: random.Random, width: int) -> bytes:
    value = generator.choice(_EXTREMES) if generator.random() < 0.7 else generator.getrandbits(8 * width)
    return (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _header(generator: random.Random, data: bytearray) -> None:
    offset, width = generator.choice(_HEADER_FIELDS)
    value = struct.pack("<I", generator.choice(_LAYOUTS)) if offset == 8 else _number(generator, width)
    data[offset : offset + width] = value


def _table(generator: random.Random, data: bytearray) -> None:
    at = 256 + 4 * generator.randrange(32)
    width = generator.choice((4, 8))
    data[at : at + width] = _number(generator, width)


def _body(data: bytearray) -> range:
    return range(256, max(257, len(data)))


def _varint(generator: random.Random, data: bytearray) -> None:
    """Put a number of any length where one may be."""
    at = generator.choice(_body(data))
    encoded = writer.varint(generator.choice(_EXTREMES))
    if generator.random() < 0.3:
        encoded = b"\xff" * generator.randrange(1, 16)
    data[at : at + len(encoded)] = encoded


def _length(generator: random.Random, data: bytearray) -> None:
    """Change the byte behind a tag of a string or message, which is its length."""
    for _ in range(50):
        at = generator.choice(_body(data))
        if at + 1 < len(data) and data[at] & 7 == 2 and data[at] < 0x80:
            data[at + 1] = generator.choice((0, 1, 0x7F, 0x80, 0xFF, (data[at + 1] + 1) & 0xFF))
            return


def _flip(generator: random.Random, data: bytearray) -> None:
    for _ in range(generator.randrange(1, 12)):
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)


def _cut(generator: random.Random, data: bytearray) -> None:
    del data[generator.randrange(len(data)) :]


def _stretch(generator: random.Random, data: bytearray) -> None:
    at, length = generator.choice(_body(data)), generator.randrange(1, 400)
    piece = bytes(data[at : at + length])
    what = generator.randrange(4)
    if what == 0:
        data[at:at] = piece
    elif what == 1:
        data[at : at + length] = bytes(len(piece))
    elif what == 2:
        del data[at : at + length]
    else:
        to = generator.choice(_body(data))
        data[to : to + len(piece)] = piece


def _mended(data: bytearray) -> None:
    """Make the header's length agree with the file, so that the damage behind it is met."""
    if len(data) >= 256:
        struct.pack_into("<I", data, 76, (len(data) - 256) & 0xFFFFFFFF)
        if int.from_bytes(data[184:192], "little") and data[8:12] == struct.pack("<I", 0x20000000):
            struct.pack_into("<Q", data, 184, len(data) - 256)


_KINDS: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _header,
    _table,
    _table,
    _varint,
    _varint,
    _length,
    _length,
    _flip,
    _cut,
    _stretch,
)


def mutated(generator: random.Random, files: list[bytes]) -> bytes:
    """One damaged file."""
    data = bytearray(generator.choice(files))
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        if len(data) > 256:
            generator.choice(_KINDS)(generator, data)
    if generator.random() < 0.6:
        _mended(data)
    return bytes(data)


def run(count: int, seed: int, ended: Counter[str] | None = None) -> list[str]:
    """Read `count` mutated files; the problems found, each with how to make its file again."""
    generator = random.Random(seed)
    files = seeds()
    problems = []
    for index in range(count):
        outcome = read_watched(mutated(generator, files))
        if ended is not None:
            ended[outcome.ended] += 1
        if outcome.problem:
            problems.append(f"file {index} of seed {seed}: {outcome.problem}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description="Read mutated offline models.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    ended: Counter[str] = Counter()
    begin = time.monotonic()
    problems = run(options.count, options.seed, ended)
    for text, times in ended.most_common():
        print(f"{times:7}  {text}")
    print(f"{options.count} files in {time.monotonic() - begin:.0f} s, {len(problems)} problems")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
