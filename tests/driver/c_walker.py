"""Reads calls of C functions out of Python source and compares each with its prototype.

A C function is called where it is looked up: ``ret = c.aclrtMalloc(byref(cell), size, policy)``, with a cell of the
right type that was made in the same function. It may be compared with None; kept, passed on or looked up by a name that
is computed it may not be, for then its calls could not be read.
"""

from __future__ import annotations

import ast
import re

from .call_walker import Finding, Source
from .prototypes import OUTPUTS, PROTOTYPES, Prototype

C_NAME = re.compile(r"acl(rt|mdl|op|prof)?[A-Z]\w+")


def check_c_calls(text: str) -> tuple[list[Finding], list[str]]:
    """Compare every call of a C function with its prototype; give the findings and the function of every call seen."""
    source = Source(text)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and C_NAME.fullmatch(node.attr):
            _check_use(source, node)
        elif isinstance(node, ast.Name) and C_NAME.fullmatch(node.id):
            source.note(node, f"{node.id} is a name of its own, so that its calls cannot be told from others")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and C_NAME.fullmatch(node.value):
            if node.value not in PROTOTYPES:
                source.note(node, f"{node.value} is not among the C prototypes of the reference")
            parent = source.parents[node]
            if isinstance(parent, ast.Subscript) or _is_getattr(parent):
                source.note(node, f"{node.value} is looked up by its name as a text")
    return source.findings, source.calls


def _is_getattr(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"


def _check_use(source: Source, node: ast.Attribute) -> None:
    name = node.attr
    prototype = PROTOTYPES.get(name)
    parent = source.parents[node]
    if prototype is None:
        source.note(node, f"{name} is not among the C prototypes of the reference")
    elif isinstance(parent, ast.Call) and parent.func is node:
        source.calls.append(name)
        _check_call(source, parent, name, prototype)
    elif not (isinstance(parent, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in parent.ops)):
        source.note(node, f"{name} is kept or passed on uncalled, so that its calls cannot be read from the source")


def _check_call(source: Source, call: ast.Call, name: str, prototype: Prototype) -> None:
    if call.keywords or any(isinstance(argument, ast.Starred) for argument in call.args):
        source.note(call, f"{name} takes positional arguments written out, no keywords and no stars")
        return
    if len(call.args) != len(prototype.arguments):
        source.note(call, f"{name} is given {len(call.args)} arguments; it {prototype}")
        return
    for given, (kind, argument) in zip(call.args, prototype.arguments, strict=True):
        cell = _cell_of(given)
        if kind not in OUTPUTS:
            if cell is not None:
                source.note(call, f"{name}: {argument} is given as an out-pointer; it is {kind}")
        elif cell is None:
            source.note(call, f"{name}: {argument} is an out-pointer, {kind}: it is given as byref(cell)")
        elif _cells(source, call).get(cell) != OUTPUTS[kind]:
            source.note(call, f"{name}: {argument} needs a cell of {OUTPUTS[kind]}, made in the same function")
    parent = source.parents[call]
    if isinstance(parent, ast.Assign) and any(isinstance(one, ast.Tuple | ast.List) for one in parent.targets):
        source.note(call, f"{name} gives one value, its status or its text")


def _cell_of(node: ast.AST) -> str | None:
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "byref"
        and len(node.args) == 1
    ):
        return ast.unparse(node.args[0])
    return None


def _cells(source: Source, call: ast.Call) -> dict[str, str]:
    """The cells that the function around a call makes: name and type."""
    function = next(source.scopes(call))
    cells = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and not node.value.args:
            for target in node.targets:
                cells[ast.unparse(target)] = ast.unparse(node.value.func)
    return cells
