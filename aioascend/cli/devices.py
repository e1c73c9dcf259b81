"""`aioascend devices`: what there is to run on."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import aioascend

from .tables import memory_text, table

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_EXAMPLES = """\
examples:
  aioascend devices
  aioascend devices --json
"""


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "devices",
        help="list the devices of this machine",
        description="List the NPUs of this machine and the emulated devices, with chip and memory.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table (memory in bytes)")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """List the devices on stdout."""
    found = aioascend.devices()
    if options.json:
        print(json.dumps([asdict(device) for device in found], indent=2))
        return
    rows = [
        (
            device.name,
            device.kind,
            device.soc_name or "-",
            memory_text(device.memory_free),
            memory_text(device.memory_total),
        )
        for device in found
    ]
    print(table(("name", "kind", "chip", "free", "memory"), rows, right=("free", "memory")))
