"""`import acl` in Python processes that a program under `aioascend emulate` starts: this folder is on their path."""

import atexit
import os
import sys

from aioascend.emulator import Config, Emulator
from aioascend.testing import install_as_acl

_emulator = Emulator(Config.from_env(trace=True))


def _report(emulator: Emulator) -> None:
    # forked children, which come here too, have a report of their own
    report = emulator.report()
    if report:
        sys.stderr.write(f"aioascend: process {os.getpid()}: {report}\n")


atexit.register(_report, _emulator)
# Puts the emulator's module in the place of this one, which is what the import statement then gives.
install_as_acl(_emulator.acl)
