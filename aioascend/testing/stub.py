"""A stub in the place of pyACL: it computes nothing, counts everything, and fails where it is told to."""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from .stub_calls import CONTEXT_NULL, StubCalls
from .stub_forms import Form, Refused, Tensor

__all__ = ["Call", "Live", "StubDriver"]

F = TypeVar("F", bound=Callable[..., Any])

_UNINITIALIZE = 100001
_INVALID_PARAM = 100000
_LOG = 100_000


@dataclass(frozen=True)
class Call:
    """One call that reached the stub. `number` counts all calls from 1, `thread` is the caller's name."""

    number: int
    function: str
    arguments: tuple[Any, ...]
    code: int
    thread: str
    context: int | None
    injected: bool


@dataclass(frozen=True)
class Live:
    """Something that was made and not yet released: what, its handle, and the number of the call that made it."""

    kind: str
    handle: int
    number: int


@dataclass
class _Fault:
    function: str | None
    code: int
    nth: int
    times: int | None
    seen: int = 0

    def strikes(self) -> bool:
        self.seen += 1
        return self.seen >= self.nth and (self.times is None or self.seen < self.nth + self.times)


class StubDriver:
    """An acl-shaped module that does nothing but keep the books: `acl`.

    Every task is done when it is submitted; copies copy, a run zeroes the outputs of the one model there is, whose
    `inputs` and `outputs` are ``(name, dtype, shape)``. All memory is host memory. As on hardware every call needs a
    context of the calling thread (107002 without) and arguments are positional. `soc_name` is the chip it says it is.
    Not for numbers: the emulator is.

    Example, every failure that opening, running and closing a session can meet::

        for k in itertools.count(1):
            with aioascend.testing.stubbed() as stub:
                rule = stub.fail_at(k, 207001)
                try:
                    with aioascend.Session(stub.model, devices="npu:0") as session:
                        session.infer_sync(numpy.zeros(4, "float32"))
                except aioascend.AioascendError:
                    pass
                stub.assert_balanced()
            if stub.total < k:
                break
    """

    def __init__(
        self,
        *,
        inputs: Sequence[tuple[str, Any, Sequence[int]]] = (("x", "float32", (4,)),),
        outputs: Sequence[tuple[str, Any, Sequence[int]]] = (("y", "float32", (4,)),),
        devices: int = 1,
        memory: int = 1 << 30,
        soc_name: str = "Stub",
        ex_events: bool = True,
    ) -> None:
        self._lock = threading.RLock()
        self._faults: list[_Fault] = []
        self._live: dict[tuple[str, int], int] = {}
        self._devices: Counter[int] = Counter()
        self._calls = StubCalls(_tensors(inputs), _tensors(outputs), devices, memory, soc_name)
        self.counts: Counter[str] = Counter()
        self.log: deque[Call] = deque(maxlen=_LOG)
        self.total = 0
        self.mistakes: list[str] = []
        self.acl = self._build(ex_events)

    @property
    def model(self) -> bytes:
        """Bytes that pass for an offline model; every path and all bytes are the same model to the stub."""
        return b"IMOD" + bytes(252)

    # -- faults -----------------------------------------------------------------------------------------------------

    def fail(self, function: str, code: int, *, nth: int = 1, times: int | None = 1) -> None:
        """Let the nth call from now of a function (``"acl.rt.malloc"``) fail with `code` (`times` None: all after it).

        A function that gives a bare value gives 0. What fails does nothing.
        """
        name = function if function.startswith("acl.") else f"acl.{function}"
        if name not in self._names:
            raise ValueError(f"no such function of the stub: {name}")
        self._add(_Fault(name, code, nth, times))

    def fail_at(self, k: int, code: int, *, times: int | None = 1) -> None:
        """Let the k-th call from now fail with `code`, whatever function it is of."""
        self._add(_Fault(None, code, k, times))

    def clear(self) -> None:
        """Forget every fault that was asked for."""
        with self._lock:
            self._faults.clear()

    def _add(self, fault: _Fault) -> None:
        if fault.nth < 1 or not fault.code:
            raise ValueError(f"wanted a count from 1 and a code other than 0, given {fault.nth} and {fault.code}")
        with self._lock:
            self._faults.append(fault)

    # -- books ------------------------------------------------------------------------------------------------------

    def live(self, kind: str | None = None) -> tuple[Live, ...]:
        """What was made and not released, in the order it was made; `kind` as "stream" or "device memory"."""
        with self._lock:
            found = [Live(what, handle, number) for (what, handle), number in self._live.items()]
        return tuple(sorted((one for one in found if kind in (None, one.kind)), key=lambda one: one.number))

    def assert_balanced(self) -> None:
        """Assert that everything made was released, once: contexts, streams, events, memory, models, datasets ...

        `acl.init` without `acl.finalize` is no leak: others in a process may share it. A release that was told to fail
        counts as one.
        """
        problems = [f"{one.kind} {one.handle:#x}, made by call {one.number}" for one in self.live()]
        problems += [f"device {device}, set and not reset" for device in self._devices.elements()]
        problems += self.mistakes
        if problems:
            raise AssertionError(f"{len(problems)} not balanced:\n  " + "\n  ".join(problems))

    # -- the module -------------------------------------------------------------------------------------------------

    def _build(self, ex_events: bool) -> ModuleType:
        acl = ModuleType("acl")
        modules = {"acl": acl}
        for name in ("rt", "mdl", "util"):
            modules[f"acl.{name}"] = ModuleType(f"acl.{name}")
            setattr(acl, name, modules[f"acl.{name}"])
        self._names: set[str] = set()
        for attribute in dir(type(self._calls)):
            method = getattr(self._calls, attribute)
            form: Form | None = getattr(method, "form", None)
            if form is None or (form.name == "acl.rt.create_event_ex_with_flag" and not ex_events):
                continue
            where, _, name = form.name.rpartition(".")
            self._names.add(form.name)
            setattr(modules[where], name, self._counted(method, form))
        return acl

    def _counted(self, method: Callable[..., Any], form: Form) -> Callable[..., Any]:
        arity = inspect.signature(method)

        @functools.wraps(method)
        def function(*arguments: Any) -> Any:
            try:
                arity.bind(*arguments)
            except TypeError as error:
                raise TypeError(f"{form.name}: args could not be parsed: {error}") from None
            with self._lock:
                injected = self._enter(form)
                if form.releases and self._live.pop((form.releases, arguments[0]), None) is None:
                    what = f"{arguments[0]:#x}, which is no {form.releases}"
                    self.mistakes.append(f"{form.name} of {what} (call {self.total})")
                    injected = injected or _INVALID_PARAM
                value, code = (None, injected) if injected else self._do(method, form, arguments)
                self._note(form, arguments, value, code, bool(injected))
            if code == 0 and form.then is not None:
                # what waits or runs foreign code, without the lock
                code = getattr(self._calls, form.then)(*arguments)
            return form.result(value, code)

        del function.__wrapped__
        function.__name__ = function.__qualname__ = form.name.rpartition(".")[2]
        function.__module__ = form.name.rpartition(".")[0]
        return function

    def _enter(self, form: Form) -> int:
        self.total += 1
        self.counts[form.name] += 1
        struck = [fault.code for fault in self._faults if fault.function in (None, form.name) and fault.strikes()]
        return struck[0] if struck else 0

    def _do(self, method: Callable[..., Any], form: Form, arguments: tuple[Any, ...]) -> tuple[Any, int]:
        calls = self._calls
        if form.init and not calls.initialised:
            return None, _UNINITIALIZE
        if form.context and calls.current() is None:
            return None, CONTEXT_NULL
        try:
            return method(*arguments), 0
        except Refused as refused:
            return None, refused.code

    def _note(self, form: Form, arguments: tuple[Any, ...], value: Any, code: int, injected: bool) -> None:
        if form.name == "acl.rt.reset_device" or (form.name == "acl.rt.set_device" and not code):
            self._devices[arguments[0]] += 1 if form.name == "acl.rt.set_device" else -1
        if code:
            self._calls.explain(code, form.name, injected)
        elif form.creates:
            self._live[(form.creates, arguments[0] if value is None else value)] = self.total
        thread = threading.current_thread().name
        context = self._calls.current()
        self.log.append(Call(self.total, form.name, arguments, code, thread, context, injected))

    def __repr__(self) -> str:
        return f"<StubDriver: {self.total} calls, {len(self.live())} alive>"


def _tensors(given: Iterable[tuple[str, Any, Sequence[int]]]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name, np.dtype(dtype), tuple(shape)) for name, dtype, shape in given)
