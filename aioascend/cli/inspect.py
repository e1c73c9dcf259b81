"""`aioascend inspect`: the inputs and outputs of a model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import aioascend

from .arguments import add_model, model_options
from .tables import shape_text, table

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_EXAMPLES = """\
examples:
  aioascend inspect model.om
  aioascend inspect model.onnx --shape x:1,3,224,224
  aioascend inspect vad.onnx --shape input:1,512 --example sr=16000 --json
"""


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "inspect",
        help="show the inputs and outputs of a model",
        description="Open a model and show the names, dtypes, shapes and sizes of its inputs and outputs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_model(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Describe the model on stdout."""
    with aioascend.Session(options.model, **model_options(options)) as session:
        device, inputs, outputs = session.device, session.inputs, session.outputs
    if options.json:
        described = {
            "model": options.model,
            "device": device,
            "inputs": _as_json(inputs),
            "outputs": _as_json(outputs),
        }
        print(json.dumps(described, indent=2, ensure_ascii=False))
    else:
        print(f"{options.model} on {device}\n\ninputs\n{_as_table(inputs)}\n\noutputs\n{_as_table(outputs)}")


def _as_json(specs: Sequence[aioascend.TensorSpec]) -> list[dict[str, Any]]:
    return [
        {"name": spec.name, "dtype": spec.dtype.name, "shape": list(spec.shape), "bytes": spec.nbytes} for spec in specs
    ]


def _as_table(specs: Sequence[aioascend.TensorSpec]) -> str:
    rows = [(spec.name, spec.dtype.name, shape_text(spec.shape), str(spec.nbytes)) for spec in specs]
    return table(("name", "dtype", "shape", "bytes"), rows, right=("bytes",))
