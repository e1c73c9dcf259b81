"""The driver calls pyACL only in the forms of the reference, and it is the only door to pyACL."""

from __future__ import annotations

import ast
import operator
import re
from pathlib import Path

import pytest

from aioascend.emulator import Emulator

from .call_walker import check_calls, check_outside
from .forms import ABSENT, FORMS, NAMED_ONLY, read_forms
from .reference import section

PACKAGE = Path(__file__).resolve().parents[2] / "aioascend"
DRIVER = sorted((PACKAGE / "driver").rglob("*.py"))
DOCTOR = sorted((PACKAGE / "doctor").rglob("*.py"))  # calls acl itself: what the driver smooths over is what it sees
OUTSIDE = sorted(
    path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in ("driver", "doctor", "emulator")
)


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


# -- the package ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DRIVER + DOCTOR, ids=name_of)
def test_the_driver_calls_pyacl_only_in_forms_of_the_reference(path: Path) -> None:
    findings, _ = check_calls(path.read_text(encoding="utf-8"))

    assert [str(finding) for finding in findings] == []


def functions_called() -> set[str]:
    return {name for path in DRIVER + DOCTOR for name in check_calls(path.read_text(encoding="utf-8"))[1]}


def test_the_walker_sees_the_calls_of_the_driver() -> None:
    assert len(functions_called()) >= 30
    assert {"init", "rt.memcpy_async", "mdl.execute_async", "create_data_buffer"} <= functions_called()


def test_the_emulator_has_every_function_that_the_driver_calls() -> None:
    acl = Emulator().acl

    assert {name for name in functions_called() if not callable(operator.attrgetter(name)(acl))} == set()


@pytest.mark.parametrize("path", OUTSIDE, ids=name_of)
def test_nothing_but_driver_and_emulator_touches_pyacl(path: Path) -> None:
    assert [str(finding) for finding in check_outside(path.read_text(encoding="utf-8"))] == []


# -- the table --------------------------------------------------------------------------------------------------------

MODULES = {4: ("",), 5: ("rt.",), 6: ("rt.",), 7: ("rt.",), 8: ("rt.",), 9: ("rt.",), 10: ("rt.",)}
MODULES |= {11: ("mdl.",), 12: ("mdl.", ""), 13: ("util.",)}


def forms_of_the_reference() -> list[tuple[str, int, int]]:
    """Give (function, arguments, results) of every form written out as `results = function(arguments)` in §4-§13."""
    forms = []
    for number, prefixes in MODULES.items():
        for span in re.findall(r"`([^`]+)`", section(number)):
            match = re.fullmatch(r"([\w, ]+) = (?:acl\.)?((?:\w+\.)?\w+\(.*\))", span)
            if not match or "…" in span or ", ..." in span or "(...)" in span:
                continue
            call = ast.parse(match[2], mode="eval").body
            assert isinstance(call, ast.Call)
            name = ast.unparse(call.func)
            known = [prefix + name for prefix in prefixes if prefix + name in FORMS]
            forms.append((known[0] if known else prefixes[0] + name, len(call.args), match[1].count(",") + 1))
    return forms


def test_every_form_of_the_reference_is_in_the_table() -> None:
    forms = forms_of_the_reference()
    assert len(forms) > 120
    for name, arguments, results in forms:
        assert name in FORMS, name
        assert arguments in FORMS[name].arities, name
        assert len(FORMS[name].results) == results, name


def test_every_function_of_the_table_is_named_in_the_reference() -> None:
    words = set(re.findall(r"\w+", "".join(section(number) for number in MODULES)))
    parts = {part for word in words for part in word.split("_")}

    assert {name for name in FORMS if name.split(".")[-1] not in words} == {
        "get_tensor_desc_dim",  # shortened there, as "get_tensor_desc_type / ... / dim(td,i)"
        "get_tensor_desc_by_index",
    }
    assert {name for name in NAMED_ONLY if not parts.issuperset(name.split(".")[-1].split("_"))} == set()


def test_the_sets_of_functions_do_not_overlap() -> None:
    assert not FORMS.keys() & NAMED_ONLY
    assert not FORMS.keys() & ABSENT
    assert not NAMED_ONLY & ABSENT


def test_the_notation_of_the_table_is_read() -> None:
    forms = read_forms("a.f(x, [y]) -> v, ret\n\n g() -> None\n")

    assert forms["a.f"].arities == {1, 2}
    assert forms["a.f"].results == ("v", "ret")
    assert forms["g"].arities == {0}
    assert forms["g"].results == ()


# -- planted faults ---------------------------------------------------------------------------------------------------

GOOD = [
    "ptr, ret = acl.rt.malloc(size, policy)",
    "ret = self.acl.rt.free(ptr)",
    "[ptr, ret] = self._acl.rt.malloc(64, 0)",
    "acl.mdl.destroy_desc(desc)",
    "n = int(acl.mdl.get_num_inputs(desc))",
    "def f(self):\n    acl = self.acl\n    free, total, ret = acl.rt.get_mem_info(1)",
    "if acl.finalize(): raise RuntimeError",
    "ret = acl.init(path)",
    "ret = acl.init()",
    "ok = hasattr(acl.rt, 'create_event_ex_with_flag')",
    "make = getattr(acl.rt, 'create_event_ex_with_flag', None)\nif make: event, ret = make(1)",
    "def f():\n    g = getattr(acl, 'init')\n    ret = g()\ndef h():\n    g = getattr(acl.rt, 'free')\n    ret = g(0)",
    "missing = [name for name in ('init', 'rt') if not hasattr(acl, name)]",
    "where = getattr(acl, '__file__', None) or 'nowhere'",
    "import acl",
    "backend = Backend('npu', acl)",
    "self._acl = acl",
]

BAD = {
    "an invented function": ("ptr = acl.rt.get_ptr_addr(x)", "does not exist"),
    "a function of another submodule": ("ptr, ret = acl.mdl.malloc(1, 2)", "not in the reference"),
    "a function on the top level": ("ptr, ret = acl.malloc(1, 2)", "not in the reference"),
    "a function without a known form": ("ret = acl.rt.memcpy2d(1, 2)", "without a form"),
    "too few arguments": ("ptr, ret = acl.rt.malloc(size)", "given 1 arguments"),
    "too many arguments": ("stream, ret = acl.rt.create_stream(0)", "given 1 arguments"),
    "a copy without its stream": ("ret = self.acl.rt.memcpy_async(d, n, s, n, 1)", "given 5 arguments"),
    "a callback without its block type": ("ret = acl.rt.launch_callback(f, 1, s)", "given 3 arguments"),
    "a keyword argument": ("ptr, ret = acl.rt.malloc(size, policy=0)", "no keywords"),
    "starred arguments": ("ptr, ret = acl.rt.malloc(*args)", "no stars"),
    "keywords from a dict": ("ptr, ret = acl.rt.malloc(1, 2, **more)", "no keywords"),
    "one result of two": ("ptr = acl.rt.malloc(size, 0)", "taken as 1 results"),
    "two results of one": ("desc, ret = acl.mdl.create_desc()", "taken as 2 results"),
    "two results of three": ("free, ret = acl.rt.get_mem_info(1)", "taken as 2 results"),
    "a pair used as a value": ("f(acl.rt.get_device_count())", "taken as 1 results"),
    "a pair returned": ("def f():\n    return acl.rt.get_device_count()", "taken as 1 results"),
    "a pair compared": ("if acl.rt.stream_query(s) == 0: pass", "taken as 1 results"),
    "no result used": ("x = acl.app_log(1, 'text')", "taken as 1 results"),
    "a starred unpacking": ("ptr, *rest = acl.rt.malloc(1, 0)", "with a star"),
    "a pair indexed": ("ptr = acl.rt.malloc(1, 0)[0]", "taken as 1 results"),
    "a walrus on a pair": ("if (x := acl.rt.malloc(1, 0)): pass", "taken as 1 results"),
    "a function kept": ("malloc = acl.rt.malloc", "uncalled"),
    "a function passed on": ("run(acl.rt.synchronize_stream, stream)", "uncalled"),
    "a submodule kept": ("rt = self.acl.rt", "uncalled"),
    "the module under another name": ("npu = self.acl", "another name"),
    "the module imported under another name": ("import acl as npu", "imported as itself"),
    "a submodule imported": ("import acl.rt", "imported as itself"),
    "names imported": ("from acl import rt", "one by one"),
    "a computed name": ("f = getattr(acl.rt, name)", "computed name"),
    "a probe for an invented function": ("hasattr(acl.rt, 'launch_host_func')", "not in the reference"),
    "a probed function called wrongly": ("f = getattr(acl.rt, 'free', None)\nret = f()", "given 0 arguments"),
    "a probed attribute called wrongly": (
        "class D:\n    def a(self): self.f = getattr(acl.rt, 'free')\n    def b(self): x, ret = self.f(1)",
        "taken as 2 results",
    ),
    "a probed function called at once": ("ret = getattr(acl.rt, 'free')()", "given 0 arguments"),
    "a probed function passed on": ("run(getattr(acl.rt, 'free'))", "uncalled"),
    "one name for two functions": (
        "f = getattr(acl.rt, 'free')\nf = getattr(acl.rt, 'free_host')",
        "stands for two functions",
    ),
    "a submodule probed and kept": ("rt = getattr(acl, 'rt')", "uncalled"),
    "a change of the module": ("setattr(acl.rt, 'free', f)", "not changed"),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_form_of_the_reference_passes(text: str) -> None:
    assert check_calls(text)[0] == []


@pytest.mark.parametrize("text, complaint", BAD.values(), ids=BAD.keys())
def test_a_planted_fault_is_found(text: str, complaint: str) -> None:
    findings, _ = check_calls(text)

    assert any(complaint in finding.text for finding in findings), findings
    assert all(finding.line > 0 for finding in findings)


@pytest.mark.parametrize(
    "text",
    [
        "import acl",
        "import acl.rt as rt",
        "from acl import rt",
        "importlib.import_module('acl')",
        "ret = acl.rt.free(p)",
        "self.driver.acl.rt.free(p)",
        "getattr(driver.acl, 'rt')",
        "sys.modules.get('acl')",
    ],
)
def test_a_planted_reach_around_the_driver_is_found(text: str) -> None:
    assert len(check_outside(text)) == 1


@pytest.mark.parametrize(
    "text",
    ["from .driver import acl_error", "'acl.rt.malloc failed'", "x.aclose()", "acl = 1", "types.ModuleType('acl')"],
)
def test_what_only_sounds_like_pyacl_is_let_alone(text: str) -> None:
    assert check_outside(text) == []
