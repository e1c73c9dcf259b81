"""The functions that stand in the ``acl`` module: what every call goes through before and after its method.

Each is compiled for its own argument formats, as `dataclasses` does for ``__init__``. A program makes ten calls for one
request, so that what they share is worth more care than most of what they do: a generic loop over the arguments takes
longer than a small call does (tests/benchmarks/emulator_overhead.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CodeType, MethodType, ModuleType
from typing import Any

from . import codes
from .args import PARSERS, ULONG, Failure, Spec, Unparsable, parse
from .faults import Rule, strike
from .nesting import Nesting

__all__ = ["export"]

_NO_FAULT: Any = object()

_SOURCE = """
def call(module, *args):
    {unpack}
    here = inside.__dict__
    if here["calls"] is not None:
        return nested(args)
    if (rules or gate) and (result := first_of_all()) is not NO_FAULT:
        return result
    here["calls"] = ()
    try:
        {parse}
        {guard}
        return method({names})
    except Failure as error:
        return failed(error)
    except Unparsable:
        raise refused(*args) from None
    finally:
        if here["calls"]:
            leave()
        else:
            here["calls"] = None
"""

# the arguments that their parser would give back as they are, by format
_AS_THEY_ARE = {"i": "-0x80000000 <= {0} <= 0x7FFFFFFF", "I": "0 <= {0} <= 0xFFFFFFFF"}


def source(formats: str, optional: int, guarded: bool) -> str:
    """The code of a function whose arguments have these `formats`, the last ones `optional`.

    Its globals give the names that it does not define. `guarded`: it asks whether it was called in a callback.
    """
    names = [f"a{position}" for position in range(len(formats))]
    guard = "if here['in_callback']:\n            in_callback()" if guarded else "pass"
    if optional:
        # what the parsers say is wrong is raised before anything else is looked at
        return _SOURCE.format(unpack="values = parsed(args)", parse="pass", guard=guard, names="*values")
    if not names:
        unpack = "if args:\n        raise arity(len(args))"
        return _SOURCE.format(unpack=unpack, parse="pass", guard=guard, names="")
    one = ", ".join(names) + ","
    unpack = f"try:\n        {one[:-1] if len(names) > 1 else one} = args\n    except ValueError:\n"
    unpack += "        raise arity(len(args)) from None"
    return _SOURCE.format(unpack=unpack, parse=_parsing(formats, names), guard=guard, names=", ".join(names))


def _parsing(formats: str, names: list[str]) -> str:
    """Statements that parse the arguments: no call where they are plain ints of the right size, as nearly always."""
    plain = [name for name, letter in zip(names, formats, strict=True) if letter in "kiI"]
    sizes = [name for name, letter in zip(names, formats, strict=True) if letter == "k"]
    others = [f"{name} = parse{n}({name})" for n, name in enumerate(names) if name not in plain]
    if not plain:
        return "; ".join(others)
    conditions = [" is ".join([*(f"type({name})" for name in plain), "int"])]
    if sizes:
        # of several at once: the bits of all of them are within the bits of a size, and none is negative
        conditions.append(f"0 <= {' | '.join(sizes)} <= {ULONG:#x}")
    conditions += [
        _AS_THEY_ARE[letter].format(name) for name, letter in zip(names, formats, strict=True) if letter in _AS_THEY_ARE
    ]
    slow = "; ".join(f"{name} = parse{names.index(name)}({name})" for name in plain)
    return "\n        ".join([f"if not ({' and '.join(conditions)}):", f"    {slow}", *others])


def export(
    module: ModuleType,
    where: str,
    method: Callable[..., Any],
    fail: Callable[[Failure, str], None],
    rules: list[Rule],
    gate: list[Callable[[str], None]],
    nesting: Nesting,
    at_once: bool,
    in_callback: Callable[[], None] | None = None,
) -> Callable[..., Any]:
    """The function that stands in `module`, one of ``acl``'s, for `method`.

    `where` is its full name (``acl.rt.malloc``), `fail` notes a failure for the calling thread, `rules` are the
    faults asked for, `gate` looks at a call before it is made and is empty while ACL is initialised. `at_once`: takes
    no lock and gives a value, so that it is done even in the middle of another call. `in_callback` is asked before a
    call that is made in a callback.
    """
    spec: Spec = method.__acl__  # type: ignore[attr-defined]
    most = len(spec.formats)
    least = most - spec.optional

    def arity(given: int) -> TypeError:
        wanted = str(most) if least == most else f"{least} to {most}"
        return TypeError(f"{where}: args could not be parsed: it takes {wanted} positional arguments, {given} given")

    def parsed(args: tuple[Any, ...]) -> list[Any]:
        if not least <= len(args) <= most:
            raise arity(len(args))
        return parse(where, method, spec, args)

    def refused(*args: Any) -> TypeError:
        try:
            parse(where, method, spec, args)
        except TypeError as error:
            return error
        return TypeError(f"{where}: args could not be parsed")

    def failed(error: Failure) -> Any:
        fail(error, where)
        return spec.result(error.code)

    def first_of_all() -> Any:
        try:
            for look in tuple(gate):
                look(where)
        except Failure as error:
            return failed(error)
        code = strike(rules)
        return failed(Failure(code, f"{where} was told to fail")) if code else _NO_FAULT

    def nested(args: tuple[Any, ...]) -> Any:
        values = parse(where, method, spec, args)
        try:
            if at_once:
                if in_callback is not None and nesting.inside.in_callback:
                    in_callback()
                return method(*values)
            if spec.gives_a_value:
                text = f"{where} was called by a destructor or signal handler in the middle of a call"
                raise Failure(codes.RT_INTERNAL_ERROR, text)
        except Failure as error:
            return failed(error)
        nesting.postpone(function, args)
        return 0

    names: dict[str, Any] = {
        "inside": nesting.inside, "leave": nesting.leave, "nested": nested, "rules": rules, "gate": gate,
        "first_of_all": first_of_all, "NO_FAULT": _NO_FAULT, "method": method, "failed": failed, "refused": refused,
        "Failure": Failure, "Unparsable": Unparsable, "arity": arity, "parsed": parsed, "in_callback": in_callback,
        **{f"parse{position}": PARSERS[letter] for position, letter in enumerate(spec.formats)},
    }  # fmt: skip
    # under this file's name: whoever looks for the program's line goes past what lies in this package
    exec(_compiled(spec.formats, spec.optional, in_callback is not None), names)
    plain = names["call"]
    plain.__name__ = where.rpartition(".")[2]
    plain.__qualname__ = where  # what Python's own errors show, of keyword arguments for one
    plain.__module__ = where.rpartition(".")[0]
    plain.__doc__ = method.__doc__
    # pyACL's are builtins, whose `__self__` is their module: as attributes of a class they do not bind its instances
    function = MethodType(plain, module)
    return function


@cache
def _compiled(formats: str, optional: int, guarded: bool) -> CodeType:
    return compile(source(formats, optional, guarded), __file__, "exec")
