"""How a function of the stub is declared: what it gives back, makes and releases."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

__all__ = ["Form", "Refused", "Tensor", "stands_for"]

F = TypeVar("F", bound=Callable[..., Any])


class Refused(Exception):
    """An ACL status other than success."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Tensor:
    """An input or output of the stub's model."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Form:
    """What a function gives back and keeps account of.

    `gives` is "status" (the code alone), "value" (the value alone) or "both"; `failed` is the value of a function that
    failed. `creates` and `releases` name the kind of thing whose handle the
    function gives, or takes first. `then` is a method that runs afterwards, outside the lock, and gives the code.
    """

    name: str
    gives: str
    creates: str = ""
    releases: str = ""
    failed: Any = 0
    context: bool = True
    init: bool = True
    then: str | None = None

    def result(self, value: Any, code: int) -> Any:
        """The value in the form that pyACL returns it in."""
        if self.gives == "status":
            return code
        if self.gives == "value":
            return self.failed if code else value
        if code:
            # a fresh dict: callers may change theirs
            value = {} if self.failed == {} else self.failed
        return (*value, code) if isinstance(value, tuple) else (value, code)


def stands_for(name: str, gives: str = "status", **more: Any) -> Callable[[F], F]:
    """Mark a method as the stub's function of that name."""

    def mark(function: F) -> F:
        function.form = Form(f"acl.{name}", gives, **more)  # type: ignore[attr-defined]
        return function

    return mark
