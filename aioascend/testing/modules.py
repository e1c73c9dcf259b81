"""An acl-shaped module in the place of pyACL for everything that says ``import acl``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Protocol

__all__ = ["as_acl", "install_as_acl"]


class HasAcl(Protocol):
    """An emulator or a stub."""

    @property
    def acl(self) -> ModuleType:
        """Its module."""
        ...


@contextlib.contextmanager
def as_acl(acl: ModuleType | HasAcl) -> Iterator[ModuleType]:
    """Let ``import acl``, ``import acl.rt``, ``from acl.mdl import execute`` ... mean `acl` inside the block.

    `acl` is an emulator or a stub, or the module of one, which the block is given. As with pyACL, its submodules are
    attributes and entries of ``sys.modules`` (pyACL reference §2), so that ``unittest.mock.patch("acl.rt.malloc")``
    works. What was imported as `acl` before is back after the block; who imported it inside keeps what they have.
    """
    module = _module_of(acl)
    undo = install_as_acl(module)
    try:
        yield module
    finally:
        undo()


def install_as_acl(acl: ModuleType | HasAcl) -> Callable[[], None]:
    """Do what `as_acl` does, until the function that is returned is called."""
    acl = _module_of(acl)
    mine = {"acl": acl}
    mine.update({f"acl.{name}": part for name, part in vars(acl).items() if isinstance(part, ModuleType)})
    earlier = {name: sys.modules[name] for name in list(sys.modules) if name == "acl" or name.startswith("acl.")}
    for name in earlier:
        del sys.modules[name]
    for name, module in mine.items():
        if module.__spec__ is None:  # importlib.util.find_spec refuses a loaded module without one
            module.__spec__ = ModuleSpec(name, None, origin="aioascend", is_package=name == "acl")
        sys.modules[name] = module

    def undo() -> None:
        for name, module in mine.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        sys.modules.update(earlier)

    return undo


def _module_of(given: ModuleType | HasAcl) -> ModuleType:
    if isinstance(given, ModuleType):  # first: pyACL's module may have anything as an attribute
        return given
    try:
        module = given.acl
    except AttributeError:
        module = None
    if not isinstance(module, ModuleType):
        raise TypeError(f"wanted an acl module, an emulator or a stub, not {type(given).__name__}")
    return module
