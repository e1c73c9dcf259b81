"""The `aioascend` command: look at devices and models, and run a model on files.

A command's result goes to stdout. What went wrong is one line on stderr, `aioascend: error: ...`, with exit code 2;
Ctrl-C gives 130.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import NoReturn

import aioascend

from . import bench, devices, doctor, emulate, inspect, run
from .arguments import UsageError
from .tables import printable

__all__ = ["main"]

_ERROR = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141

_EXAMPLES = """\
examples:
  aioascend devices
  aioascend inspect model.onnx --shape x:1,3,224,224
  aioascend run model.om --input x.npy --output-dir out
  aioascend bench model.om --depth auto
  aioascend emulate infer.py model.om
  aioascend doctor --device npu:0
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(_ERROR, _error_line(f"{message} (see {self.prog} --help)"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name) and give its exit code; `SystemExit` as argparse does."""
    for stream in (sys.stdout, sys.stderr):
        # The names of tensors are any text; a terminal that cannot show them must not end the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        options = _parser().parse_args(argv)
        with _logging_to_stderr():
            options.command(options)
        if sys.stdout is not None:  # None where the command was started with stdout closed
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has left, as `head` does. What is still buffered would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except (aioascend.AioascendError, UsageError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except MemoryError:
        return _fail("not enough memory")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="aioascend",
        description="Inference on Ascend NPUs, or on the emulator where there is none.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"aioascend {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (devices, inspect, run, bench, emulate, doctor):
        command.add_to(commands)
    return parser


def _version() -> str:
    try:
        return metadata.version("aioascend")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _error_line(message: str) -> str:
    return f"aioascend: error: {_one_line(message)}\n"


def _one_line(message: str) -> str:
    return printable(" ".join(message.split()))


def _fail(message: str) -> int:
    sys.stderr.write(_error_line(message))
    return _ERROR


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"aioascend: {record.levelname.lower()}: {_one_line(record.getMessage())}"


@contextlib.contextmanager
def _logging_to_stderr() -> Iterator[None]:
    """Show warnings of the library in the form of the command's own messages."""
    logger = logging.getLogger("aioascend")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine())
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
