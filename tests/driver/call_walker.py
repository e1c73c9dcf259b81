"""Reads pyACL calls out of Python source and compares each with the table of call forms.

Calls are found by their attribute chain: a root named `acl` or `_acl` (a plain name, or an attribute such as
`self.acl`), a submodule where there is one, the function. The walker therefore also refuses what would hide a call from
it: a submodule or function kept under another name, `getattr` with a computed name, `import acl as x`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from .forms import ABSENT, FORMS, NAMED_ONLY, SUBMODULES

ROOTS = frozenset({"acl", "_acl"})


@dataclass(frozen=True)
class Finding:
    """One thing in a source that the call rules do not allow."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """One parsed source: its tree, the parent of every node, and the functions that names of it were bound to."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.findings: list[Finding] = []
        self.calls: list[str] = []
        self.probed: dict[tuple[ast.AST, str], str] = {}

    def note(self, node: ast.AST, text: str) -> None:
        self.findings.append(Finding(getattr(node, "lineno", 0), text))

    def scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        """Give the functions around a node, innermost first, then the module."""
        at: ast.AST | None = node
        while at is not None:
            if isinstance(at, Function | ast.Lambda | ast.Module):
                yield at
            at = self.parents.get(at)


def is_root(node: ast.AST) -> bool:
    """Tell whether an expression is the `acl` module itself."""
    return (isinstance(node, ast.Name) and node.id in ROOTS) or (isinstance(node, ast.Attribute) and node.attr in ROOTS)


def is_call_of(node: ast.AST, *names: str) -> TypeGuard[ast.Call]:
    """Tell whether a node calls a builtin of one of these names."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def chain(node: ast.AST) -> str | None:
    """Give `rt.malloc` for `<root>.rt.malloc`, "" for the root, None for what does not start at a root."""
    if is_root(node):
        return ""
    if isinstance(node, ast.Attribute):
        before = chain(node.value)
        if before is not None:
            return f"{before}.{node.attr}" if before else node.attr
    return None


def check_calls(text: str) -> tuple[list[Finding], list[str]]:
    """Compare every pyACL call of a source with the table; give the findings and the function of every call seen."""
    source = Source(text)
    _find_probed(source)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            _check_import(source, node)
        elif is_call_of(node, "getattr", "hasattr", "setattr", "delattr") and node.args:
            _check_probe(source, node)
        elif isinstance(node, ast.Attribute):
            _check_chain(source, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value and is_root(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if not is_root(target):
                    source.note(node, f"`acl` kept under another name, {ast.unparse(target)}")
        if isinstance(node, ast.Call) and chain(node.func) is None:
            probed = _probed_function(source, node)
            if probed:
                _check_call(source, node, probed)
    return source.findings, source.calls


def _find_probed(source: Source) -> None:
    """Remember names bound to a function found by `getattr(acl.rt, "name", ...)`, each in its scope."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or node.value is None:
            continue
        name = _probe_name(node.value)
        if not name:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            # An attribute is bound for the whole module, a plain name for its function.
            scope = next(source.scopes(node)) if isinstance(target, ast.Name) else source.tree
            key = (scope, ast.unparse(target))
            if source.probed.setdefault(key, name) != name:
                source.note(node, f"{key[1]} stands for two functions, {source.probed[key]} and {name}")


def _probe_name(node: ast.AST) -> str | None:
    if is_call_of(node, "getattr") and len(node.args) >= 2:
        base, name = chain(node.args[0]), node.args[1]
        if base is not None and isinstance(name, ast.Constant) and isinstance(name.value, str):
            return f"{base}.{name.value}" if base else name.value
    return None


def _probed_function(source: Source, call: ast.Call) -> str | None:
    direct = _probe_name(call.func)
    if direct:
        return direct
    text = ast.unparse(call.func)
    return next((source.probed[scope, text] for scope in source.scopes(call) if (scope, text) in source.probed), None)


def _check_import(source: Source, node: ast.Import | ast.ImportFrom) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] == "acl" and (alias.name != "acl" or alias.asname not in (None, *ROOTS)):
                source.note(node, "`acl` is imported as itself, or the calls cannot be read from the source")
    elif node.level == 0 and node.module and node.module.split(".")[0] == "acl":
        source.note(node, "names of `acl` are not imported one by one, or the calls cannot be read from the source")


def _check_probe(source: Source, node: ast.Call) -> None:
    base = chain(node.args[0])
    if base is None:
        return
    what = ast.unparse(node.func)
    literal = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else None
    if what in ("setattr", "delattr"):
        source.note(node, f"{what} on `acl`: the vendor's module is not changed")
    elif not isinstance(literal, str):
        if what == "getattr":  # hasattr gives nothing that could be called
            source.note(node, f"getattr on `acl` with a computed name, {ast.unparse(node)}")
    elif not literal.startswith("__"):
        name = f"{base}.{literal}" if base else literal
        if name not in FORMS and name not in NAMED_ONLY and name not in SUBMODULES:
            source.note(node, f"acl.{name} is probed for and is not in the reference")
        parent = source.parents[node]
        bound = isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr)
        called = isinstance(parent, ast.Call) and parent.func is node
        if what == "getattr" and (name in SUBMODULES or not (bound or called or isinstance(parent, ast.Compare))):
            source.note(node, f"acl.{name} is passed on uncalled, so that its calls cannot be read from the source")


def _check_chain(source: Source, node: ast.Attribute) -> None:
    name = chain(node)
    parent = source.parents[node]
    if not name or isinstance(parent, ast.Attribute):
        return  # the root itself, or the inner part of a longer chain
    if isinstance(parent, ast.Call) and parent.func is node:
        _check_call(source, parent, name)
    elif not (is_call_of(parent, "getattr", "hasattr") and parent.args[0] is node):
        source.note(node, f"acl.{name} is kept or passed on uncalled, so that its calls cannot be read from the source")


def _check_call(source: Source, call: ast.Call, name: str) -> None:
    source.calls.append(name)
    form = FORMS.get(name)
    if form is None:
        if name in ABSENT:
            source.note(call, f"acl.{name} does not exist")
        elif name in NAMED_ONLY:
            source.note(call, f"acl.{name} is named by the reference without a form")
        else:
            source.note(call, f"acl.{name} is not in the reference")
        return
    if call.keywords or any(isinstance(argument, ast.Starred) for argument in call.args):
        source.note(call, f"acl.{name} takes positional arguments written out, no keywords and no stars")
    elif len(call.args) not in form.arities:
        source.note(call, f"acl.{name} is given {len(call.args)} arguments; it {form}")
    _check_results(source, call, name, form.results)


def _check_results(source: Source, call: ast.Call, name: str, results: tuple[str, ...]) -> None:
    parent = source.parents[call]
    if isinstance(parent, ast.Expr):
        return  # thrown away
    taken = 1
    if isinstance(parent, ast.Assign):
        for target in parent.targets:
            if isinstance(target, ast.Tuple | ast.List):
                if any(isinstance(element, ast.Starred) for element in target.elts):
                    source.note(call, f"the results of acl.{name} are unpacked with a star")
                    return
                taken = len(target.elts)
    if taken != len(results):
        source.note(call, f"acl.{name} is taken as {taken} results; it {FORMS[name]}")


def check_outside(text: str) -> list[Finding]:
    """Find what a module that is neither driver nor emulator may not do: import pyACL, or call through `acl.`."""
    source = Source(text)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            if "acl" in _imported(node):
                source.note(node, "imports acl")
        elif isinstance(node, ast.Constant) and node.value == "acl":
            # A module object made under that name, as a stub is, reaches nothing.
            call = source.parents[node]
            if isinstance(call, ast.Call) and not ast.unparse(call.func).endswith("ModuleType"):
                source.note(node, 'imports or looks up "acl" by name')
        elif is_call_of(node, "getattr") and node.args and is_root(node.args[0]):
            source.note(node, f"reaches into {ast.unparse(node.args[0])}")
        elif isinstance(node, ast.Attribute) and is_root(node.value):
            source.note(node, f"reaches into {ast.unparse(node.value)}")
    return source.findings


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Give the top-level packages that an import statement loads; none for a relative one."""
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    return {(node.module or "").split(".")[0]} if node.level == 0 else set()
