"""`aioascend inspect`: what a model is; an `.om` is taken apart without a device, an `.onnx` is opened."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import aioascend
from aioascend import om
from aioascend.om import OmFile

from .arguments import UsageError, add_model, model_options
from .om_report import comparison, report
from .tables import printable, shape_text, table

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_EXAMPLES = """\
examples:
  aioascend inspect model.om
  aioascend inspect old.om new.om
  aioascend inspect model.onnx --shape x:1,3,224,224
  aioascend inspect vad.onnx --shape input:1,512 --example sr=16000 --json

An .om file is read, not loaded: no device is needed. Of two, the differences come first.
"""
_OM_MAGIC = b"IMOD"
_ONNX_START = b"\x08"


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "inspect",
        help="show what a model is: inputs, outputs, and what an .om file is made of",
        description="Show the inputs and outputs of a model; of an .om file also its header, sections, gears, "
        "operators, memory, chip and compiler, and what to look at before it is used.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_model(parser)
    parser.add_argument("other", metavar="OTHER", nargs="?", help="a second .om file to compare with")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Describe the model on stdout."""
    paths = [options.model] if options.other is None else [options.model, options.other]
    if len(paths) == 2 or _is_om(options.model):
        _check_options(options)
        _describe_om(paths, [aioascend.inspect(path).om for path in paths], options.json)
    else:
        _describe_opened(options)


def _is_om(path: str) -> bool:
    """Whether the file is an offline model by its content, or by its name where the content is not an .onnx file's."""
    try:
        start = om.first_bytes(path, len(_OM_MAGIC))
    except (OSError, ValueError):
        return path.endswith(".om")
    return start == _OM_MAGIC or (path.endswith(".om") and not start.startswith(_ONNX_START))


def _check_options(options: argparse.Namespace) -> None:
    given = {
        "--device": options.device != "auto",
        "--shape": options.shape,
        "--example": options.example,
        "--output-shape": options.output_shape,
    }
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} is for .onnx files; an .om file is read without a device and has its shapes")


def _describe_om(paths: Sequence[str], files: Sequence[OmFile], as_json: bool) -> None:
    if not as_json:
        print(report(paths[0], files[0]) if len(files) == 1 else comparison(paths, files))
        return
    described: list[dict[str, Any]] = [
        {"model": path, **om.as_json(one)} for path, one in zip(paths, files, strict=True)
    ]
    if len(files) == 1:
        print(json.dumps(described[0], indent=2))
        return
    different, same = om.compare(*files)
    compared = {
        "differences": [{"what": label, "values": values} for label, *values in different],
        "same": dict(same),
        "models": described,
    }
    print(json.dumps(compared, indent=2))


def _describe_opened(options: argparse.Namespace) -> None:
    with aioascend.Session(options.model, **model_options(options)) as session:
        device, inputs, outputs = session.device, session.inputs, session.outputs
    if options.json:
        described = {
            "model": options.model,
            "device": device,
            "inputs": _as_json(inputs),
            "outputs": _as_json(outputs),
        }
        print(json.dumps(described, indent=2))
    else:
        print(f"{printable(options.model)} on {device}\n\ninputs\n{_as_table(inputs)}\n\noutputs\n{_as_table(outputs)}")


def _as_json(specs: Sequence[aioascend.TensorSpec]) -> list[dict[str, Any]]:
    return [
        {"name": spec.name, "dtype": spec.dtype.name, "shape": list(spec.shape), "bytes": spec.nbytes} for spec in specs
    ]


def _as_table(specs: Sequence[aioascend.TensorSpec]) -> str:
    rows = [(spec.name, spec.dtype.name, shape_text(spec.shape), str(spec.nbytes)) for spec in specs]
    return table(("name", "dtype", "shape", "bytes"), rows, right=("bytes",))
