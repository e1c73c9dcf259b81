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
from typing import Any, TypeVar

ULONG = (1 << 64) - 1
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
        return value if 0 <= value <= ULONG else value & ULONG
    if isinstance(value, int):
        return int(value) & ULONG
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


_NO_BARE: Any = object()


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
