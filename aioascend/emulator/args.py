"""How a C extension reads its arguments, and how its results are shaped.

pyACL is positional-only. Handles, pointers and sizes are parsed as C ``unsigned long`` without overflow check (a
negative int wraps, a bool is an int, a numpy integer is refused), 32-bit signed arguments are range-checked and take
anything with ``__index__``, 32-bit unsigned ones are masked (reference §2, §22). A wrong argument raises `TypeError`;
an ACL error never raises, it is the last (or only) value returned.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from types import MethodType, ModuleType
from typing import Any, TypeVar

from . import codes
from .faults import Rule, strike
from .nesting import Nesting

_ULONG = (1 << 64) - 1
_UINT = (1 << 32) - 1


class Unparsable(Exception):
    """An argument that the C extension's parser refuses."""


class Failure(Exception):
    """An ACL status other than success, with the text that ``get_recent_err_msg`` shows.

    `rule`: the rule that was broken, where the failure is a use that hardware forbids.
    """

    def __init__(self, code: int, text: str, rule: str = "") -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.rule = rule


def ulong(value: Any) -> int:
    """Format ``k``: an int, wrapped to 64 bits."""
    if type(value) is int:
        return value if 0 <= value <= _ULONG else value & _ULONG
    if isinstance(value, int):
        return int(value) & _ULONG
    raise Unparsable(f"must be int, not {type(value).__name__}")


def int32(value: Any) -> int:
    """Format ``i``: anything with ``__index__`` that fits 32 signed bits."""
    if type(value) is not int:
        value = _index(value)
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return int(value)
    raise Unparsable(f"{value} does not fit a 32-bit int")


def uint32(value: Any) -> int:
    """Format ``I``: anything with ``__index__``, masked to 32 bits."""
    if type(value) is not int:
        value = _index(value)
    return int(value) & _UINT


def text(value: Any) -> str:
    """Format ``s``: a str without null characters."""
    if not isinstance(value, str):
        raise Unparsable(f"must be str, not {type(value).__name__}")
    if "\0" in value:
        raise Unparsable("embedded null character")
    return value


def real(value: Any) -> float:
    """Format ``f``: anything that converts to a float."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Unparsable(f"must be real number, not {type(value).__name__}") from None


def anything(value: Any) -> Any:
    """Format ``O``."""
    return value


def function(value: Any) -> Any:
    """Format ``O`` for a function."""
    if not callable(value):
        raise Unparsable(f"must be callable, not {type(value).__name__}")
    return value


def _index(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise Unparsable(f"{type(value).__name__!r} object cannot be interpreted as an integer") from None


PARSERS: dict[str, Callable[[Any], Any]] = {
    "k": ulong,
    "i": int32,
    "I": uint32,
    "s": text,
    "f": real,
    "O": anything,
    "C": function,
}

F = TypeVar("F", bound=Callable[..., Any])


class Spec:
    """What `call` notes on a function: argument formats, and the values that stand before the code of a failure."""

    __slots__ = ("bare", "failed", "formats", "optional")

    def __init__(self, formats: str, failed: tuple[Any, ...], bare: Any) -> None:
        required, _, optional = formats.partition("|")
        self.formats = required + optional
        self.optional = len(optional)
        self.failed = failed
        self.bare = bare

    @property
    def gives_a_value(self) -> bool:
        """Whether there is more in the result than a status."""
        return bool(self.failed) or self.bare is not _NO_BARE

    def result(self, code: int) -> Any:
        """What the function returns when it fails with `code`."""
        if self.bare is not _NO_BARE:
            return self.bare
        if not self.failed:
            return code
        # fresh containers: callers may change the dict they got
        return (*(value.copy() if isinstance(value, (dict, list)) else value for value in self.failed), code)


_BUSY = codes.RT_INTERNAL_ERROR
_NO_BARE: Any = object()
_NO_FAULT: Any = object()


def call(formats: str = "", *, failed: tuple[Any, ...] = (), bare: Any = _NO_BARE) -> Callable[[F], F]:
    """Mark a method as an ACL function.

    `formats` has one letter per argument (``k i I s f O C``, optional ones after ``|``). A function that returns
    ``(value, ret)`` gives in `failed` the values that stand before the code when it fails; one that returns a value
    without status gives in `bare` the value that means failure.
    """
    spec = Spec(formats, failed, bare)

    def mark(function: F) -> F:
        function.__acl__ = spec  # type: ignore[attr-defined]
        return function

    return mark


def parse(where: str, method: Callable[..., Any], spec: Spec, values: tuple[Any, ...]) -> list[Any]:
    """Parse `values` again after a parser refused one, and raise the `TypeError` that says which."""
    parsed = []
    for position, (letter, value) in enumerate(zip(spec.formats, values, strict=False), 1):
        try:
            parsed.append(PARSERS[letter](value))
        except Unparsable as error:
            name = tuple(inspect.signature(method).parameters)[position - 1]
            raise TypeError(f"{where}: args could not be parsed: argument {position} ({name}) {error}") from None
    return parsed


def export(
    module: ModuleType,
    where: str,
    method: Callable[..., Any],
    fail: Callable[[Failure, str], None],
    rules: list[Rule],
    gate: list[Callable[[str], None]],
    nesting: Nesting,
    at_once: bool,
) -> Callable[..., Any]:
    """The function that stands in `module`, one of ``acl``'s, for `method`.

    `where` is its full name (``acl.rt.malloc``), `fail` notes a failure for the calling thread, `rules` are the
    faults asked for, `gate` looks at a call before it is made and is empty while ACL is initialised. One closure per
    arity: a generic ``*args`` loop costs more than most calls do. `at_once`: takes no lock and gives a value, so that
    it is done even in the middle of another call.
    """
    spec: Spec = method.__acl__  # type: ignore[attr-defined]
    most = len(spec.formats)
    least = most - spec.optional
    parsers = [PARSERS[letter] for letter in spec.formats]

    def arity(given: int) -> TypeError:
        wanted = str(most) if least == most else f"{least} to {most}"
        return TypeError(f"{where}: args could not be parsed: it takes {wanted} positional arguments, {given} given")

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
                return method(*values)
            if spec.gives_a_value:
                raise Failure(_BUSY, f"{where} was called by a destructor or signal handler in the middle of a call")
        except Failure as error:
            return failed(error)
        nesting.postpone(function, args)
        return 0

    plain = _by_arity(
        where, method, parsers, least, most, spec, arity, failed, rules, gate, first_of_all, nested, nesting
    )
    plain.__name__ = where.rpartition(".")[2]
    plain.__qualname__ = where  # what Python's own errors show, of keyword arguments for one
    plain.__module__ = where.rpartition(".")[0]
    plain.__doc__ = method.__doc__
    # pyACL's are builtins, whose `__self__` is their module: as attributes of a class they do not bind its instances
    function = MethodType(plain, module)
    return function


def _by_arity(
    where: str,
    method: Callable[..., Any],
    parsers: list[Callable[[Any], Any]],
    least: int,
    most: int,
    spec: Spec,
    arity: Callable[[int], TypeError],
    failed: Callable[[Failure], Any],
    rules: list[Rule],
    gate: list[Callable[[str], None]],
    first_of_all: Callable[[], Any],
    nested: Callable[[tuple[Any, ...]], Any],
    nesting: Nesting,
) -> Callable[..., Any]:
    inside, leave = nesting.inside, nesting.leave

    def general(_: ModuleType, *args: Any) -> Any:
        if not least <= len(args) <= most:
            raise arity(len(args))
        values = parse(where, method, spec, args)
        if inside.calls is not None:
            return nested(args)
        if (rules or gate) and (result := first_of_all()) is not _NO_FAULT:
            return result
        inside.calls = ()
        try:
            return method(*values)
        except Failure as error:
            return failed(error)
        finally:
            if inside.calls:
                leave()
            else:
                inside.calls = None

    def refused(*args: Any) -> TypeError:
        try:
            parse(where, method, spec, args)
        except TypeError as error:
            return error
        return TypeError(f"{where}: args could not be parsed")

    if spec.optional or most > 6:
        return general
    # One function for each arity, alike but for its arguments: without the list and the loop of `general` a small call
    # takes about half the time (tests/benchmarks/emulator_overhead.py).
    first, second, third, fourth, fifth, sixth = (parsers + [anything] * 6)[:6]

    def zero(_: ModuleType, *args: Any) -> Any:
        if args:
            raise arity(len(args))
        if inside.calls is not None:
            return nested(args)
        if (rules or gate) and (result := first_of_all()) is not _NO_FAULT:
            return result
        inside.calls = ()
        try:
            return method()
        except Failure as error:
            return failed(error)
        finally:
            if inside.calls:
                leave()
            else:
                inside.calls = None

    def one(_: ModuleType, *args: Any) -> Any:
        try:
            (a,) = args
        except ValueError:
            raise arity(len(args)) from None
        if inside.calls is not None:
            return nested(args)
        if (rules or gate) and (result := first_of_all()) is not _NO_FAULT:
            return result
        inside.calls = ()
        try:
            return method(first(a))
        except Failure as error:
            return failed(error)
        except Unparsable:
            raise refused(*args) from None
        finally:
            if inside.calls:
                leave()
            else:
                inside.calls = None

    def two(_: ModuleType, *args: Any) -> Any:
        try:
            a, b = args
        except ValueError:
            raise arity(len(args)) from None
        if inside.calls is not None:
            return nested(args)
        if (rules or gate) and (result := first_of_all()) is not _NO_FAULT:
            return result
        inside.calls = ()
        try:
            return method(first(a), second(b))
        except Failure as error:
            return failed(error)
        except Unparsable:
            raise refused(*args) from None
        finally:
            if inside.calls:
                leave()
            else:
                inside.calls = None

    def three(_: ModuleType, *args: Any) -> Any:
        try:
            a, b, c = args
        except ValueError:
            raise arity(len(args)) from None
        if inside.calls is not None:
            return nested(args)
        if (rules or gate) and (result := first_of_all()) is not _NO_FAULT:
            return result
        inside.calls = ()
        try:
            return method(first(a), second(b), third(c))
        except Failure as error:
            return failed(error)
        except Unparsable:
            raise refused(*args) from None
        finally:
            if inside.calls:
                leave()
            else:
                inside.calls = None

    def four(_: ModuleType, *args: Any) -> Any:
        try:
            a, b, c, d = args
        except ValueError:
            raise arity(len(args)) from None
        if inside.calls is not None:
            return nested(args)
        if (rules or gate) and (result := first_of_all()) is not _NO_FAULT:
            return result
        inside.calls = ()
        try:
            return method(first(a), second(b), third(c), fourth(d))
        except Failure as error:
            return failed(error)
        except Unparsable:
            raise refused(*args) from None
        finally:
            if inside.calls:
                leave()
            else:
                inside.calls = None

    def five(_: ModuleType, *args: Any) -> Any:
        try:
            a, b, c, d, e = args
        except ValueError:
            raise arity(len(args)) from None
        if inside.calls is not None:
            return nested(args)
        if (rules or gate) and (result := first_of_all()) is not _NO_FAULT:
            return result
        inside.calls = ()
        try:
            return method(first(a), second(b), third(c), fourth(d), fifth(e))
        except Failure as error:
            return failed(error)
        except Unparsable:
            raise refused(*args) from None
        finally:
            if inside.calls:
                leave()
            else:
                inside.calls = None

    def six(_: ModuleType, *args: Any) -> Any:
        try:
            a, b, c, d, e, f = args
        except ValueError:
            raise arity(len(args)) from None
        if inside.calls is not None:
            return nested(args)
        if (rules or gate) and (result := first_of_all()) is not _NO_FAULT:
            return result
        inside.calls = ()
        try:
            return method(first(a), second(b), third(c), fourth(d), fifth(e), sixth(f))
        except Failure as error:
            return failed(error)
        except Unparsable:
            raise refused(*args) from None
        finally:
            if inside.calls:
                leave()
            else:
                inside.calls = None

    return (zero, one, two, three, four, five, six)[most]
