"""The C library is called only in the prototypes of the reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aioascend.driver.routes import ROUTES, is_output

from .c_walker import check_c_calls
from .forms import FORMS
from .prototypes import CTYPES, OUTPUTS, PROTOTYPES, RESULTS, read_arguments, read_header
from .reference import section, table_rows

PACKAGE = Path(__file__).resolve().parents[2] / "aioascend"
CALLERS = sorted((PACKAGE / "driver").rglob("*.py")) + sorted((PACKAGE / "doctor").rglob("*.py"))
OUTSIDE = sorted(
    path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in ("driver", "doctor", "emulator")
)


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


@pytest.mark.parametrize("path", CALLERS, ids=name_of)
def test_c_functions_are_called_only_in_their_prototypes(path: Path) -> None:
    assert [str(finding) for finding in check_c_calls(path.read_text(encoding="utf-8"))[0]] == []


@pytest.mark.parametrize("path", OUTSIDE, ids=name_of)
def test_nothing_else_calls_a_c_function(path: Path) -> None:
    findings, calls = check_c_calls(path.read_text(encoding="utf-8"))

    assert (calls, [str(finding) for finding in findings]) == ([], [])


def test_the_walker_sees_the_calls_of_the_driver() -> None:
    seen = {name for path in CALLERS for name in check_c_calls(path.read_text(encoding="utf-8"))[1]}

    assert {"aclInit", "aclrtMalloc", "aclmdlLoadFromFile", "aclmdlExecuteAsync", "aclGetRecentErrMsg"} <= seen
    assert len(seen) >= 20


def test_the_prototypes_are_those_of_the_reference() -> None:
    listed: dict[str, tuple[tuple[str, str], ...]] = {}
    for names, text in table_rows(section(21)):
        none = text.startswith("none")
        arguments = () if none else read_arguments(", ".join(re.findall(r"`([^`]+)`", text)))
        if "as aclrtMemcpy, then" in text:
            arguments = listed["aclrtMemcpy"] + arguments
        assert arguments or none
        assert text.count("→") == sum(kind in OUTPUTS for kind, _ in arguments)
        listed |= dict.fromkeys(re.findall(r"acl\w+", names), arguments)

    assert listed == {name: prototype.arguments for name, prototype in PROTOTYPES.items()}
    assert {name for name, prototype in PROTOTYPES.items() if prototype.result != "aclError"} == {"aclGetRecentErrMsg"}


def test_the_table_of_routes_has_every_prototype_as_it_is() -> None:
    assert {route.c for route in ROUTES} == set(PROTOTYPES)
    for route in ROUTES:
        prototype = PROTOTYPES[route.c]
        assert route.arguments == tuple(CTYPES[kind] for kind, _ in prototype.arguments), route.c
        assert route.result is RESULTS[prototype.result], route.c


def test_the_two_names_of_a_route_are_of_functions_with_the_same_arguments_and_results() -> None:
    assert len({route.pyacl for route in ROUTES}) == len({route.c for route in ROUTES}) == len(ROUTES)
    for route in ROUTES:
        form = FORMS[route.pyacl]
        assert sum(not is_output(argument) for argument in route.arguments) in form.arities, route
        assert len(route.outputs) + 1 == len(form.results), route


def test_calls_that_may_take_long_have_the_c_route() -> None:
    slow = re.compile(r"init|finalize|load|unload|malloc|free|memcpy|destroy|create|reset|set_device|unsubscribe|size")
    quick = {"rt.memcpy_async", "rt.set_context", "rt.subscribe_report", "mdl.execute_async", "get_recent_err_msg"}

    for route in ROUTES:
        name = route.pyacl.rpartition(".")[2]
        if route.pyacl == "get_recent_err_msg":
            continue  # goes the way of the call that failed
        wanted = "c" if slow.search(name) and route.pyacl not in quick else "pyacl"
        assert route.default == wanted, route


def test_the_notation_of_the_header_is_read() -> None:
    found = read_header(
        "aclError aclA(void **out, const char *path, int n);\nconst char *aclB(void);\nint other(int);\n"
    )

    assert found["aclA"].arguments == (("void **", "out"), ("const char *", "path"), ("int", "n"))
    assert found["aclB"].arguments == ()
    assert set(found) == {"aclA", "aclB"}


# -- planted faults ---------------------------------------------------------------------------------------------------

GOOD = [
    "ret = c.aclrtFree(pointer)",
    "ret = acl.rt.free(p) if c.aclrtFree is None else c.aclrtFree(p)",
    "def f():\n    cell = c_void_p()\n    ret = self.c.aclrtMalloc(byref(cell), 64, 0)",
    "def f():\n    a = c_size_t()\n    b = c_size_t()\n    ret = c.aclmdlQuerySize(path, byref(a), byref(b))",
    "text = c.aclGetRecentErrMsg()",
    "if c.aclInit is not None: ret = c.aclInit(None)",
    "Route('aclrtFree', 'rt.free')",
    '"""Calls aclrtLaunchKernel."""',
]

BAD = {
    "a function outside the prototypes": ("ret = c.aclrtLaunchKernel(f)", "not among"),
    "the name of one as a text": ("Route('aclrtMemGetInfo', 'rt.get_mem_info')", "not among"),
    "too few arguments": ("ret = c.aclrtFree()", "given 0 arguments"),
    "too many arguments": ("ret = c.aclFinalize(0)", "given 1 arguments"),
    "pyACL's form": ("ret = c.aclrtMalloc(64, 0)", "given 2 arguments"),
    "an out-pointer by value": ("def f():\n    cell = c_void_p()\n    ret = c.aclrtMalloc(cell, 64, 0)", "byref(cell)"),
    "out-pointers in the wrong place": (
        "def f():\n    cell = c_void_p()\n    ret = c.aclrtMalloc(64, byref(cell), 0)",
        "is given as an out-pointer",
    ),
    "a cell of the wrong type": (
        "def f():\n    cell = c_void_p()\n    ret = c.aclmdlLoadFromFile(path, byref(cell))",
        "needs a cell of c_uint32",
    ),
    "a cell that others may share": ("ret = c.aclrtMalloc(byref(self.cell), 64, 0)", "made in the same function"),
    "a keyword": ("ret = c.aclrtFree(ptr=1)", "no keywords"),
    "starred arguments": ("ret = c.aclrtFree(*args)", "no stars"),
    "two results": ("pointer, ret = c.aclrtFree(pointer)", "one value"),
    "a function kept": ("free = c.aclrtFree", "kept or passed on"),
    "a function passed on": ("run(c.aclrtFree, 1)", "kept or passed on"),
    "a function of its own name": ("from x import aclrtFree\nret = aclrtFree(1)", "name of its own"),
    "a function by subscript": ("ret = library['aclrtFree'](1)", "as a text"),
    "a function by getattr": ("ret = getattr(library, 'aclrtFree')(1)", "as a text"),
    "a comparison with a number": ("ok = c.aclrtFree == 1", "kept or passed on"),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_call_in_its_prototype_passes(text: str) -> None:
    assert check_c_calls(text)[0] == []


@pytest.mark.parametrize("text, complaint", BAD.values(), ids=BAD.keys())
def test_a_planted_fault_is_found(text: str, complaint: str) -> None:
    findings, _ = check_c_calls(text)

    assert any(complaint in finding.text for finding in findings), findings
    assert all(finding.line > 0 for finding in findings)
