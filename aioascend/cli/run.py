"""`aioascend run`: one run of a model, from .npy files to .npy files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

import aioascend

from .arguments import UsageError, add_model, model_options
from .arrays import file_names, read_npy, write_npy
from .tables import shape_text, table

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_EXAMPLES = """\
examples:
  aioascend run model.om --input x.npy --output-dir out
  aioascend run model.onnx --shape x:1,3,224,224 --input x.npy --output-dir out --device emulator:0
  aioascend run model.om --dry-run --device emulator:0 --input x.npy
  aioascend run vad.onnx --input input=speech.npy --input state=state.npy --input sr=sr.npy

Inputs without a name are taken in the model's order, after those with one. A file's dtype and shape must be those of
the input; `aioascend inspect` shows them.
"""


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "run",
        help="run a model on .npy files",
        description="Run a model once on .npy files, write its outputs as .npy files and list them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_model(parser)
    parser.add_argument(
        "-i",
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="an .npy file for the next input, or for the input of that name (one for each input)",
    )
    parser.add_argument(
        "-o",
        "--output-dir",
        type=Path,
        metavar="DIR",
        help="where to write one .npy file an output, named after it (made if missing; without it nothing is written)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="open an .om on the emulator: inputs are checked, nothing is computed, outputs are made up",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Run the model, write the outputs and list them on stdout."""
    directory: Path | None = options.output_dir
    # Known before the model is loaded, so told before.
    if directory is not None and directory.exists() and not directory.is_dir():
        raise UsageError(f"--output-dir: {directory} is not a directory")
    check_files(options.input)

    # The synchronous doors: reading a file blocks, and Ctrl-C must end that too.
    with aioascend.Session(options.model, **model_options(options)) as session:
        outputs = session.infer_sync(read_inputs(options.input, session.inputs))
        names = [spec.name for spec in session.outputs]

    heading = ["name", "dtype", "shape"]
    rows = [[name, array.dtype.name, shape_text(array.shape)] for name, array in zip(names, outputs, strict=True)]
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        heading.append("file")
        for row, file_name, array in zip(rows, file_names(names), outputs, strict=True):
            write_npy(directory / file_name, array)
            row.append(str(directory / file_name))
    print(table(heading, rows))
    if outputs.synthetic:
        print("\nnothing was computed: the outputs are made up (0, 1, 2, ... 99, 0, 1, ...)")


def check_files(texts: Sequence[str]) -> None:
    """Raise `UsageError` unless every text of `--input` leads to a file."""
    for text in texts:
        if not _readings(text):
            raise UsageError(f"--input {text}: there is no such file")


def read_inputs(texts: Sequence[str], specs: Sequence[aioascend.TensorSpec]) -> dict[str, npt.NDArray[Any]]:
    """Read the files of `--input` and give them by the names of the inputs.

    Raises `UsageError` for an unknown or repeated name, a file too many or too few, and what is no .npy file.
    """
    paths: dict[str, str] = {}
    unnamed = []
    known = {spec.name for spec in specs}
    for text in texts:
        readings = _readings(text)
        name, path = next((reading for reading in readings if reading[0] in known), readings[0])
        if not name:
            unnamed.append(path)
        elif name not in known:
            raise UsageError(f"the model has no input named {name}; {_takes(specs)}")
        elif name in paths:
            raise UsageError(f"--input is given twice for {name}")
        else:
            paths[name] = path
    free = [spec.name for spec in specs if spec.name not in paths]
    if len(unnamed) != len(free):
        raise UsageError(f"--input is given {_files(len(texts))}; {_takes(specs)}")
    paths.update(zip(free, unnamed, strict=True))
    return {spec.name: _read(paths[spec.name], spec) for spec in specs}


def _readings(text: str) -> list[tuple[str, str]]:
    """Give the ways to read `[NAME=]FILE` that lead to a file, each as (name, path), the one without a name first.

    Both names and paths may hold "=".
    """
    cuts = [index for index, letter in enumerate(text) if letter == "="]
    ways = [("", text), *((text[:cut], text[cut + 1 :]) for cut in cuts if cut > 0)]
    return [(name, path) for name, path in ways if os.path.exists(path)]


def _read(path: str, spec: aioascend.TensorSpec) -> npt.NDArray[Any]:
    try:
        array = read_npy(path)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if array.dtype.kind == "V" and array.dtype.itemsize == spec.dtype.itemsize and spec.dtype.name == "bfloat16":
        # An .npy file does not know bfloat16: what was saved as such comes back as raw bytes.
        array = array.view(spec.dtype)
    return array


def _files(count: int) -> str:
    return {0: "no file", 1: "1 file"}.get(count, f"{count} files")


def _takes(specs: Sequence[aioascend.TensorSpec]) -> str:
    """Say which inputs the model takes."""
    described = ", ".join(f"{spec.name} ({spec.dtype.name} {shape_text(spec.shape)})" for spec in specs)
    return f"the model takes one file for each of {described}" if specs else "the model takes none"
