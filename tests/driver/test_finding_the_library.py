"""Which libascendcl.so is called: the one that importing `acl` has mapped, and no other (in processes of their own)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aioascend.driver.native import mapped_copies

from .c_library import compile_library

FAKE_ACL = """
import ctypes, types
for path in {paths!r}:
    ctypes.CDLL(path)
rt = types.SimpleNamespace(set_device=lambda index: 100 + index, get_device_count=lambda: (1, 0))
mdl = util = types.SimpleNamespace()
init = create_data_buffer = get_recent_err_msg = lambda *args: None
"""

PROGRAM = """
import logging, os, sys
logging.basicConfig(format="%(message)s", level=logging.WARNING)
from aioascend import driver
found = driver.backend("npu")
one = driver.Driver(found, "npu:0")
one.init()
print(repr(found.native.where))
print(len(found.native.functions))
try:
    one.set_device(7)
    print("through C")
except Exception as error:
    print(type(error).__name__, error.code)
with open("/proc/self/maps") as maps:
    print(len({line.split()[-1] for line in maps if "libascendcl" in line}))
"""


def run(tmp_path: Path, *loads: Path) -> tuple[list[str], str]:
    """What the program prints with an `acl` that loads these libraries; no other is ever loaded."""
    (tmp_path / "acl.py").write_text(FAKE_ACL.format(paths=[str(path) for path in loads]))
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).resolve().parents[2])])
    # A copy that a search by name would find: never to be loaded.
    elsewhere = compile_library(tmp_path / "other" / "libascendcl.so")
    environment = {**os.environ, "PYTHONPATH": path, "LD_LIBRARY_PATH": str(elsewhere.parent)}
    environment.pop("AIOASCEND_DRIVER", None)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert int(lines.pop()) == len({path.resolve() for path in loads if "ascendcl" in path.name})
    return lines, ended.stderr


def test_the_copy_that_acl_has_mapped_is_called(tmp_path: Path) -> None:
    library = compile_library(tmp_path / "cann" / "lib64" / "libascendcl.so")

    assert run(tmp_path, library) == ([repr(str(library)), "27", "through C"], "")


def test_a_copy_behind_links_is_found_by_the_file_it_is(tmp_path: Path) -> None:
    library = compile_library(tmp_path / "cann-9.0" / "lib64" / "libascendcl.so.1.0")
    (tmp_path / "latest").symlink_to(tmp_path / "cann-9.0")
    (tmp_path / "cann-9.0" / "lib64" / "libascendcl.so").symlink_to("libascendcl.so.1.0")

    lines, errors = run(tmp_path, tmp_path / "latest" / "lib64" / "libascendcl.so")

    assert (lines, errors) == ([repr(str(library)), "27", "through C"], "")


def test_without_a_mapped_copy_none_is_loaded_and_pyacl_is_called(tmp_path: Path) -> None:
    lines, errors = run(tmp_path)

    assert lines == ["''", "0", "AclError 107"]
    assert "no libascendcl.so is mapped into this process" in errors
    assert "aclmdlLoadFromFile" in errors
    assert errors.count("calls go through pyACL") == 1


def test_a_library_of_another_name_counts_as_missing(tmp_path: Path) -> None:
    lines, errors = run(tmp_path, compile_library(tmp_path / "lib" / "libacl_all.so"))

    assert lines == ["''", "0", "AclError 107"]
    assert "no libascendcl.so is mapped" in errors


def test_of_two_mapped_copies_neither_is_called(tmp_path: Path) -> None:
    copies = [compile_library(tmp_path / name / "libascendcl.so") for name in ("a", "b")]

    lines, errors = run(tmp_path, *copies)

    assert lines == ["''", "0", "AclError 107"]
    assert "several copies" in errors
    assert all(str(copy) in errors for copy in copies)


@pytest.mark.parametrize("folder", ["stub", "devlib"])
def test_a_link_time_stub_is_not_called(tmp_path: Path, folder: str) -> None:
    stub = compile_library(tmp_path / "lib64" / folder / "libascendcl.so")

    lines, errors = run(tmp_path, stub)

    assert lines == ["''", "0", "AclError 107"]
    assert f"{stub} is the toolkit's link-time stub" in errors


def test_a_copy_whose_file_is_gone_is_not_replaced_by_another(tmp_path: Path) -> None:
    library = compile_library(tmp_path / "cann" / "libascendcl.so")
    acl = FAKE_ACL.replace("rt =", f"import os; os.remove({str(library)!r})\nrt =", 1)
    (tmp_path / "acl.py").write_text(acl.format(paths=[str(library)]))
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).resolve().parents[2])])
    environment = {**os.environ, "PYTHONPATH": path}

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, env=environment, check=False
    )

    assert ended.stdout.splitlines()[:3] == ["''", "0", "AclError 107"]
    assert "deleted" in ended.stderr


MAPS = """\
7f00-7f01 r--p 00000000 08:01 1001                       /usr/local/Ascend/lib64/libascendcl.so
7f01-7f02 r-xp 00001000 08:01 1001                       /usr/local/Ascend/lib64/libascendcl.so
7f02-7f03 r-xp 00001000 08:01 1002                       /usr/local/Ascend/lib64/libascendcl_impl.so
7f03-7f04 r-xp 00001000 08:01 1003                       /home/a b/libascendcl.so.7
7f04-7f05 rw-p 00000000 00:00 0 
7f05-7f06 rw-p 00000000 00:00 0                          [stack]
7f06-7f07 r-xp 00001000 08:01 1004                       /lib/notlibascendcl.so
"""  # noqa: W291


def test_the_lines_of_the_map_are_read() -> None:
    assert mapped_copies(MAPS.splitlines(keepends=True)) == [
        "/usr/local/Ascend/lib64/libascendcl.so",
        "/home/a b/libascendcl.so.7",
    ]
