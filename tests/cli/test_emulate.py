"""`aioascend emulate`: a program runs as python would run it, with the emulator as its `acl`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aioascend.cli.emulate import FOUND_SOMETHING

from . import models
from .conftest import Result

ROOT = Path(__file__).parent.parent.parent

LEAKS = "import acl, sys; acl.init(); acl.rt.set_device(0); acl.rt.malloc_host(64)\n"


class Shell:
    """A directory with programs, and two ways to run them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {name: text for name, text in os.environ.items() if not name.startswith("AIOASCEND_")}
        self.environment["PYTHONPATH"] = str(ROOT)

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def python(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self._command(arguments), **self._how, capture_output=True, timeout=60)

    def emulate(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "aioascend.cli", "emulate", *arguments)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        command = self._command(("-m", "aioascend.cli", "emulate", *arguments))
        return subprocess.Popen(command, **self._how, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def _command(self, arguments: tuple[object, ...]) -> list[str]:
        return [sys.executable, *map(str, arguments)]

    @property
    def _how(self) -> dict[str, object]:
        return {"cwd": self.directory, "env": self.environment, "text": True, "stdin": subprocess.DEVNULL}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


PROBE = """\
import json, os, sys
import helper
print(json.dumps({
    "name": __name__, "file": __file__, "argv": sys.argv, "path": sys.path[0], "package": __package__,
    "main": sys.modules["__main__"].__dict__ is globals(), "doc": __doc__, "helper": helper.__file__,
    "spec": getattr(__spec__, "name", None),
}))
"""


def test_a_script_sees_what_python_shows_it(shell: Shell) -> None:
    shell.write("programs/helper.py", "")
    shell.write("programs/probe.py", PROBE)
    arguments = ("programs/probe.py", "--strict", "-m", "x y", "--", "-h")
    assert json.loads(shell.emulate(*arguments).stdout) == json.loads(shell.python(*arguments).stdout)


@pytest.mark.parametrize("module", ["package", "package.probe"])
def test_a_module_sees_what_python_shows_it(shell: Shell, module: str) -> None:
    shell.write("helper.py", "")
    shell.write("package/__init__.py", "")
    shell.write("package/__main__.py", PROBE)
    shell.write("package/probe.py", PROBE)
    assert json.loads(shell.emulate("-m", module, "1").stdout) == json.loads(shell.python("-m", module, "1").stdout)


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(3)",
        "sys.exit()",
        "sys.exit('a text')",
        "{}['missing']",
        "raise ValueError('a', 1)",
        "exec('1 +')",
        "sys.excepthook = lambda *error: print('hook', error[0].__name__)\n1 / 0",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()",
        "import atexit\natexit.register(print, 'atexit')\nraise SystemExit(4)",
        "class A:\n    def __del__(self): print('del')\na = A()",
    ],
)
def test_a_program_ends_as_with_python(shell: Shell, end: str) -> None:
    shell.write("program.py", f"import sys\nprint('begin')\ndef run():\n    exec({end!r}, globals())\nrun()\n")
    emulated, real = shell.emulate("program.py"), shell.python("program.py")
    assert (emulated.returncode, emulated.stdout, emulated.stderr) == (real.returncode, real.stdout, real.stderr)


def test_a_program_that_is_no_python_is_shown_as_python_shows_it(shell: Shell) -> None:
    shell.write("program.py", "import sys\ndef (\n")
    emulated, real = shell.emulate("program.py"), shell.python("program.py")
    assert (emulated.returncode, emulated.stderr) == (real.returncode, real.stderr)


def test_ctrl_c_ends_a_program_as_with_python(shell: Shell) -> None:
    shell.write("program.py", f"{LEAKS}print('ready', flush=True)\nimport time\ntime.sleep(60)\n")
    with shell.start("program.py") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    assert running.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    assert "aioascend/cli" not in err
    assert "pinned memory" in err


def test_acl_and_its_parts_are_modules_that_can_be_imported_and_patched(shell: Shell) -> None:
    shell.write(
        "program.py",
        "from unittest import mock\n"
        "import importlib.util\n"
        "import acl.rt, acl.mdl as mdl, acl.util, acl.op, acl.media, acl.prof\n"
        "from acl.rt import malloc\n"
        "import acl\n"
        "assert acl.mdl is mdl and acl.rt.malloc is malloc and importlib.util.find_spec('acl') is not None\n"
        "assert not [name for name in dir(acl) if name.startswith('ACL_')]\n"
        "with mock.patch('acl.rt.malloc', return_value=(1, 2)):\n"
        "    assert acl.rt.malloc(3, 0) == (1, 2)\n"
        "assert acl.rt.malloc is malloc\n",
    )
    ended = shell.emulate("program.py")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_model_loads_under_any_name_and_sessions_run_in_the_program_too(shell: Shell) -> None:
    models.double(shell.directory / "model.om")
    shell.write(
        "program.py",
        "import acl, aioascend, numpy\n"
        "assert acl.init() == 0 and acl.rt.set_device(0) == 0\n"
        "model, ret = acl.mdl.load_from_file('model.om')\n"
        "assert ret == 0 and acl.mdl.unload(model) == 0\n"
        "with aioascend.Session('model.om', devices='emulator:0') as session:\n"
        "    print(session.infer_sync(numpy.ones((2, 3), numpy.float32))[0].sum())\n"
        "assert acl.rt.reset_device(0) == 0 and acl.finalize() == 0\n",
    )
    ended = shell.emulate("--strict", "program.py")
    assert (ended.returncode, ended.stdout) == (0, "12.0\n"), ended.stderr


def test_what_destructors_release_at_the_very_end_is_no_leak(shell: Shell) -> None:
    shell.write(
        "resource.py",
        "import acl\n"
        "class Resource:\n"
        "    def __init__(self): acl.init(); acl.rt.set_device(0); self.stream, _ = acl.rt.create_stream()\n"
        "    def __del__(self): print(acl.rt.destroy_stream(self.stream), acl.rt.reset_device(0), acl.finalize())\n"
        "kept = []\n",
    )
    shell.write("program.py", "import resource\nresource.kept.append(resource.Resource())\nprint('end')\n")
    # A module of the standard library has that name as well: the program's own comes first, as with python.
    ended = shell.emulate("--strict", "program.py")
    assert (ended.returncode, ended.stdout) == (0, "end\n0 0 0\n"), ended.stderr


def test_leaks_are_told_with_their_place_and_fail_strict_runs_alone(shell: Shell) -> None:
    shell.write("program.py", f"{LEAKS}sys.exit(int(sys.argv[1]))\n")
    lax = shell.emulate("program.py", "0")
    strict = shell.emulate("--strict", "program.py", "0")
    failing = shell.emulate("--strict", "program.py", "3")
    shell.environment["AIOASCEND_EMULATOR_STRICT"] = "1"
    by_environment = shell.emulate("program.py", "0")
    endings = (lax, strict, failing, by_environment)
    assert [ended.returncode for ended in endings] == [0, FOUND_SOMETHING, 3, FOUND_SOMETHING]
    for ended in endings:
        assert ended.stdout == ""
        assert ended.stderr.startswith("aioascend: ")
        assert f"{shell.directory / 'program.py'}:1 in <module>" in ended.stderr


def test_what_the_emulator_notes_is_shown_when_it_happens_and_to_the_very_end(shell: Shell) -> None:
    shell.write(
        "program.py",
        "import acl, logging, sys\n"
        "logging.basicConfig(stream=sys.stdout, level=0)\n"
        "acl.init(); acl.rt.set_device(0)\n"
        "pointer, _ = acl.rt.malloc(64, 0); acl.rt.free(pointer)\n"
        "thread, _ = acl.util.start_thread(lambda words: words[1], ['one'])\n"
        "try: acl.util.stop_thread(thread)\n"
        "except RuntimeError: print('raised', file=sys.stderr)\n"
        "class Last:\n"
        "    def __del__(self): acl.rt.free(pointer); acl.rt.reset_device(0); acl.finalize()\n"
        "last = Last()\n",
    )
    ended = shell.emulate("program.py")
    assert (ended.returncode, ended.stdout) == (0, "")
    raised, _, later = ended.stderr.partition("raised\n")
    assert "IndexError: list index out of range" in raised
    assert later.startswith("aioascend: warning: double-free: ")


def test_devices_faults_and_profile_reach_the_program(shell: Shell) -> None:
    shell.write("card.toml", 'name = "slow"\nmalloc = 0.05\n')
    shell.write(
        "program.py",
        "import acl, time\n"
        "acl.init(); acl.rt.set_device(2)\n"
        "begin = time.monotonic()\n"
        "pointer, first = acl.rt.malloc(64, 0)\n"
        "took = time.monotonic() - begin\n"
        "print(acl.rt.get_device_count(), first, acl.rt.malloc(64, 0), took >= 0.05)\n"
        "acl.rt.free(pointer); acl.rt.reset_device(2); acl.finalize()\n",
    )
    ended = shell.emulate("--devices", 3, "--faults", "acl.rt.malloc#2=207001", "--profile", "card.toml", "program.py")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "(3, 0) 0 (0, 207001) True\n", "")


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_processes_that_a_program_starts_have_an_emulator_of_their_own(shell: Shell, way: str) -> None:
    shell.write(
        "program.py",
        "import multiprocessing, acl\n"
        "def child(answers):\n"
        "    from acl.rt import get_device_count\n"
        "    answers.put([acl.init(), acl.rt.set_device(1), get_device_count(), acl.rt.malloc_host(64)[1]])\n"
        "    acl.rt.reset_device(1)\n"
        "    acl.finalize()\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context({way!r})\n"
        "    answers = context.Queue()\n"
        "    process = context.Process(target=child, args=(answers,))\n"
        "    process.start()\n"
        "    print(answers.get(timeout=30))\n"
        "    process.join()\n",
    )
    ended = shell.emulate("--strict", "--devices", "2", "program.py")
    assert (ended.returncode, ended.stdout) == (0, "[0, 0, (2, 0), 0]\n"), ended.stderr
    assert ("pinned memory" in ended.stderr) == (way == "spawn")


@pytest.mark.parametrize("before", ["", "acl.init(); acl.rt.set_device(0)"])
def test_a_forked_child_that_ends_by_itself_reports_what_it_did(shell: Shell, before: str) -> None:
    shell.write(
        "program.py",
        f"import acl, os, sys\n{before}\n"
        "if child := os.fork():\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        f"    {'acl.rt.reset_device(0); acl.finalize()' if before else ''}\n"
        "else:\n"
        "    acl.init(); acl.rt.malloc_host(64)\n"
        "    sys.exit(4)\n",
    )
    ended = shell.emulate("--strict", "program.py")
    assert (ended.returncode, ended.stdout) == (0, "4\n"), ended.stderr
    assert ended.stderr.count("aioascend: process ") == 1
    report = ended.stderr.partition("aioascend: process ")[2].partition("aioascend: ")[0]
    assert ("used-in-forked-child" in report) == bool(before)
    assert "device 0" not in report


def test_help_has_examples(aioascend_command: Callable[..., Result]) -> None:
    result = aioascend_command("emulate", "--help")
    assert result.code == 0
    assert "examples:\n  aioascend emulate infer.py model.om" in result.out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["missing.py"], "missing.py: No such file or directory"),
        (["."], ". is a directory, a Python file was wanted"),
        (["-m", "no_such_module"], "-m no_such_module: there is no such module, or it is no Python file"),
        (["-m", "no_such.module"], "-m no_such.module: No module named 'no_such'"),
        (["-m", "math"], "-m math: there is no such module, or it is no Python file"),
        (["--devices", "0", "x.py"], "argument --devices: wanted a number from 1 to 64, given '0'"),
        (["--faults", "acl.rt.mallo=1", "x.py"], "--faults: no such function: acl.rt.mallo"),
        (["--faults", "lost.1", "x.py"], "--faults: there is no device 1, only 1 from 0"),
        (["--profile", "missing.toml", "x.py"], "missing.toml: No such file or directory"),
        ([], "the following arguments are required: SCRIPT (see"),
    ],
)
def test_what_was_given_wrongly_is_one_line(
    aioascend_command: Callable[..., Result], arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert aioascend_command("emulate", *arguments).message.startswith(message)
