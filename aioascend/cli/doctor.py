"""`aioascend doctor`: does this machine's driver behave as we believe?"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ..doctor import Row, as_expected, examine, to_json, to_text

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_EXAMPLES = """\
examples:
  aioascend doctor --device npu:0
  aioascend doctor --device npu:0 --model resnet50.om --json > report.json
"""


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "doctor",
        help="check what we believe of the driver, on this device",
        description="Check, on one device and in under a minute, every fact about the driver that aioascend relies on "
        "and that could not be verified without hardware. Prints a table to paste into a report. Exit code 0 when all "
        "is as expected, 1 when something differs or hangs. Run it while nobody else uses the device.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--device", default="auto", help='a name such as "npu:0" or "emulator:0" (default: auto)')
    parser.add_argument("--model", help="an offline model for the checks that need one (on the emulator: an .onnx)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Print the table on stdout, each row on stderr as it comes; leaves by `SystemExit` where something differs."""
    rows = examine(options.device, model=options.model, progress=_progress)
    print(to_json(options.device, rows) if options.json else to_text(options.device, rows))
    if not as_expected(rows):
        sys.stdout.flush()
        raise SystemExit(1)


def _progress(row: Row) -> None:
    print(f"{row.group}: {row.fact}: {row.verdict}", file=sys.stderr, flush=True)
