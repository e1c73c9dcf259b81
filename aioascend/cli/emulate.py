"""`aioascend emulate`: any pyACL program, with the emulator in the place of pyACL."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import importlib.machinery
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from aioascend.emulator import Config, Emulator, Profile
from aioascend.testing import install_as_acl

from .arguments import UsageError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

FOUND_SOMETHING = 70
_FOR_CHILDREN = Path(__file__).parent / "children"

_EXAMPLES = f"""\
examples:
  aioascend emulate infer.py model.om picture.jpg
  aioascend emulate --strict --devices 2 -m my_package.serve --port 8000
  aioascend emulate --faults "acl.rt.malloc#3=207001,task.execute=507015" infer.py model.om
  aioascend emulate --profile card.toml bench.py model.om
  aioascend emulate --dry-run infer.py model.om

The program runs as `python SCRIPT` would run it. What it loads as an offline model (.om) is an .onnx file, under any
name; with --dry-run it may be a real .om file. What it never released, and what hardware forbids, is listed on stderr
when it ends; with --strict such a program ends with exit code {FOUND_SOMETHING}, unless its own exit code tells of a
failure already.
"""


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "emulate",
        help="run a pyACL program without an NPU",
        description="Run a Python program in which `import acl` gives the emulator.",
        usage="aioascend emulate [OPTIONS] SCRIPT [ARGUMENT ...]",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--strict", action="store_true", help="refuse what hardware forbids, and count leaks as errors")
    parser.add_argument("--devices", type=_count, metavar="N", help="how many devices there are (default 1)")
    parser.add_argument("--profile", metavar="FILE", help="a TOML file of the times that the device takes")
    parser.add_argument(
        "--faults", metavar="FAULTS", help="what shall go wrong, as acl.rt.malloc#3=207001 (the third call)"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="open real .om files as well: described as they are, nothing computed, outputs made up (0, 1, 2, ...)",
    )
    parser.add_argument(
        "-m", dest="module", action="store_true", help="SCRIPT is the name of a module, as of python -m"
    )
    parser.add_argument("script", metavar="SCRIPT", help="the program")
    rest = parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="its arguments")
    rest.required = False  # argparse holds a rest for required when it names what is missing
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Run the program; leaves by `SystemExit` with its exit code, and reports when the interpreter has ended it."""
    emulator = _emulator(options)
    program, code, folder = _module(options.script) if options.module else _script(options.script)
    sys.argv = [str(program.__file__) if options.module else options.script, *options.arguments]

    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder
    # Processes of multiprocessing take over the path, others the environment.
    sys.path.insert(1, str(_FOR_CHILDREN))
    os.environ.update(_for_children(options))
    ending = _Ending(emulator, folder)
    # Registered before anything that the program registers, so that it runs after all of that.
    atexit.register(ending)
    _show_log()
    # For the rest of the process: threads and destructors of the program still need it.
    install_as_acl(emulator.acl)
    sys.modules["__main__"] = program
    ending.code = _execute(code, vars(program), ending)
    del program, code
    raise SystemExit(ending.code)


def _emulator(options: argparse.Namespace) -> Emulator:
    # The places of what is left behind are always told: tracing costs a few microseconds a call.
    changes: dict[str, Any] = {"strict": True} if options.strict else {"trace": True}
    if options.dry_run:
        changes["dry_run"] = True
    if options.devices is not None:
        changes["devices"] = options.devices
    try:
        if options.profile is not None:
            changes["profile"] = Profile.from_file(options.profile)
        emulator = Emulator(Config.from_env(**changes))
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    if options.faults is not None:
        try:
            emulator.faults.parse(options.faults)
        except ValueError as error:
            raise UsageError(f"--faults: {error}") from None
    return emulator


class _WithTraceback(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"aioascend: {record.levelname.lower()}: {super().format(record)}"


def _show_log() -> None:
    """Show what the emulator has to say, whatever the program does with logging, until the very end."""
    logger = logging.getLogger("aioascend.emulator")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_WithTraceback())
    logger.addHandler(handler)
    logger.propagate = False


def _for_children(options: argparse.Namespace) -> dict[str, str]:
    """The variables by which Python processes that the program starts get an emulator like its own."""
    given = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    ours = str(Path(__file__).parents[2])
    variables = {"PYTHONPATH": os.pathsep.join([str(_FOR_CHILDREN), *given, ours])}
    for name, value in (
        ("STRICT", "1" if options.strict else None),
        ("DRY_RUN", "1" if options.dry_run else None),
        ("DEVICES", options.devices),
        ("PROFILE", options.profile and os.path.abspath(options.profile)),
        ("FAULTS", options.faults),
    ):
        if value is not None:
            variables[f"AIOASCEND_EMULATOR_{name}"] = str(value)
    return variables


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"wanted a number from 1 to 64, given {text!r}")
    return int(text)


# -- the program as `python` would make it -------------------------------------------------------------------------


def _script(path: str) -> tuple[ModuleType, CodeType, str]:
    """The program, its code, and the folder that comes first on its path."""
    if os.path.isdir(path):
        raise UsageError(f"{path} is a directory, a Python file was wanted")
    whole = os.path.abspath(path)
    loader = importlib.machinery.SourceFileLoader("__main__", whole)
    data = loader.get_data(path)
    code = _compiled(lambda: loader.source_to_code(data, whole))
    # python resolves links for the path alone
    return _new_main(whole, loader), code, os.path.dirname(os.path.realpath(path))


def _module(name: str) -> tuple[ModuleType, CodeType, str]:
    folder = sys.path[0] = os.getcwd()
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise UsageError(f"-m {name}: {error}") from None
    loader = spec.loader if spec is not None else None
    if spec is None or not isinstance(loader, importlib.machinery.SourceFileLoader):
        raise UsageError(f"-m {name}: there is no such module, or it is no Python file")
    found, wanted = loader, spec.name
    program = _new_main(str(spec.origin), loader)
    program.__spec__ = spec
    program.__package__ = spec.parent
    return program, _compiled(lambda: found.get_code(wanted)), folder


def _new_main(path: str, loader: importlib.machinery.SourceFileLoader) -> ModuleType:
    program = ModuleType("__main__")
    program.__file__ = path
    program.__loader__ = loader
    program.__dict__["__cached__"] = None
    program.__dict__["__builtins__"] = sys.modules["builtins"]
    return program


def _compiled(make: Callable[[], CodeType | None]) -> CodeType:
    try:
        code = make()
    except (SyntaxError, ValueError) as error:
        sys.excepthook(type(error), error.with_traceback(None), None)
        raise SystemExit(1) from None
    assert code is not None
    return code


def _execute(code: CodeType, names: dict[str, Any], ending: _Ending) -> int:
    """Run the program and give its exit code. An exception is shown as python shows it, and not kept."""
    try:
        exec(code, names)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException as error:
        trace = _without_us(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        ending.interrupted = isinstance(error, KeyboardInterrupt)
        return 128 + signal.SIGINT if ending.interrupted else 1
    return 0


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


# -- the end -------------------------------------------------------------------------------------------------------


class _Ending:
    """What is left to do when the program's threads have ended and its exit functions have run."""

    def __init__(self, emulator: Emulator, folder: str) -> None:
        self._emulator = emulator
        self._strict = emulator.config.strict
        self._folder = folder
        self._pid = os.getpid()
        self._modules = set(sys.modules)
        self.code = 0
        self.interrupted = False

    def __call__(self) -> None:
        self._forget_the_program()
        report = self._emulator.report()
        if os.getpid() != self._pid:
            # a forked child: the report is of what it did itself, the exit code its own
            if report:
                _write(f"aioascend: process {os.getpid()}: {report}\n")
            return
        if report:
            _write(f"aioascend: {report}\n")
        elif self._strict:
            _write("aioascend: the program left nothing behind and did nothing that hardware forbids\n")
        if self.interrupted:
            # As python does: whoever started it, a shell loop for one, learns that it was Ctrl-C.
            self._leave(lambda: signal.raise_signal(signal.SIGINT))
        elif report and self._strict and self.code == 0:
            self._leave(lambda: os._exit(FOUND_SOMETHING))

    def _forget_the_program(self) -> None:
        """Run the destructors that wait for the interpreter's end: many programs release their device there."""
        for name in list(sys.modules):
            path = getattr(sys.modules[name], "__file__", None)
            if name == "__main__" or (name not in self._modules and _is_source_in(self._folder, path)):
                del sys.modules[name]
        sys.modules["__main__"] = ModuleType("__main__")
        gc.collect()

    def _leave(self, how: Callable[[], object]) -> None:
        """End the process now, with an exit code that an exit function cannot choose otherwise."""
        self._emulator.shutdown()
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        how()


def _is_source_in(folder: str, path: object) -> bool:
    if not isinstance(path, str) or not path.endswith(".py") or "site-packages" in path:
        return False
    where = os.path.realpath(path)
    return where.startswith(folder + os.sep) and not where.startswith(os.path.dirname(os.__file__) + os.sep)


def _write(text: str) -> None:
    with contextlib.suppress(Exception):
        print(text, end="", file=sys.stderr, flush=True)
