"""Options that several commands share, and the notations of their values."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from typing import Any, TypedDict, TypeVar

from .arrays import read_npy

Shape = tuple[int, ...]
T = TypeVar("T")


class UsageError(Exception):
    """What the user gave does not fit; the message is for the user."""


class ModelOptions(TypedDict):
    """Arguments of `aioascend.Session` beside the model."""

    devices: str
    shapes: dict[str, Shape] | None
    examples: dict[str, Any] | None
    output_shapes: dict[str, Shape] | None
    dry_run: bool


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add `--device`."""
    parser.add_argument(
        "-d",
        "--device",
        default="auto",
        metavar="DEVICE",
        help="npu:0, emulator:0, ... (default auto: an NPU where there is one, else the emulator)",
    )


def add_model(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    """Add the model, its device and what fixes the shapes of an .onnx file."""
    parser.add_argument("model", nargs=nargs, metavar="MODEL", help="an .om file (NPU) or an .onnx file (emulator)")
    add_device(parser)
    group = parser.add_argument_group("dynamic axes of an .onnx file")
    group.add_argument(
        "--shape",
        action="append",
        type=named_shape,
        metavar="NAME:SIZES",
        help="fix the shape of an input, as x:1,3,224,224 (may be repeated)",
    )
    group.add_argument(
        "--example",
        action="append",
        type=named_example,
        metavar="NAME=VALUE",
        help="a value of an input, a number, a JSON list or an .npy file, from which output shapes are found by a run",
    )
    group.add_argument(
        "--output-shape",
        action="append",
        type=named_shape,
        metavar="NAME:SIZES",
        help="state the shape of an output that cannot be found otherwise",
    )


def model_options(options: argparse.Namespace) -> ModelOptions:
    """Give the arguments of `aioascend.Session` for what `add_model` added."""
    return {
        "devices": options.device,
        "shapes": _by_name(options.shape, "--shape"),
        "examples": _by_name(options.example, "--example"),
        "output_shapes": _by_name(options.output_shape, "--output-shape"),
        "dry_run": getattr(options, "dry_run", False),
    }


def named_shape(text: str) -> tuple[str, Shape]:
    """Read `NAME:SIZES`, as `x:1,3,224,224`; no sizes (`x:`) are the shape of a single number.

    The name may hold colons. Raises `argparse.ArgumentTypeError`.
    """
    name, colon, sizes = text.rpartition(":")
    parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
    if not (name and colon) or not all(re.fullmatch(r"[0-9]{1,18}", part) for part in parts):
        raise argparse.ArgumentTypeError(f"wanted NAME:SIZES, as x:1,3,224,224, given {text!r}")
    return name, tuple(map(int, parts))


def named_example(text: str) -> tuple[str, Any]:
    """Read `NAME=VALUE`: a number, true or false, a JSON list of such, or the path of an .npy file.

    Raises `argparse.ArgumentTypeError`.
    """
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"wanted NAME=VALUE, as sr=16000, given {text!r}")
    if value.endswith(".npy"):
        try:
            return name, read_npy(value)
        except (OSError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, int | float | list):
        raise argparse.ArgumentTypeError(f"{name}: wanted a number, a JSON list or an .npy file, given {value!r}")
    return name, parsed


def _by_name(pairs: Sequence[tuple[str, T]] | None, option: str) -> dict[str, T] | None:
    given: dict[str, T] = {}
    for name, value in pairs or ():
        if name in given:
            raise UsageError(f"{option} is given twice for {name}")
        given[name] = value
    return given or None
