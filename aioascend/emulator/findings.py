"""What hardware forbids, leaves undefined or leaks: noted with the program's own line; errors in strict mode."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import FrameType, TracebackType

from .args import Failure

logger = logging.getLogger("aioascend.emulator")
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INNER = (os.path.join(_HERE, "emulator") + os.sep, os.path.join(_HERE, "driver") + os.sep)
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_PACKAGES = os.path.join(_LIBRARY, "site-packages") + os.sep
UNKNOWN = "an unknown place (strict mode and trace remember it)"


@dataclass(frozen=True)
class Violation:
    """A forbidden use: a stable name for the rule, the function, a sentence, the program's line, how often there."""

    rule: str
    call: str
    text: str
    where: str
    times: int = 1

    def __str__(self) -> str:
        often = f", {self.times} times" if self.times > 1 else ""
        return f"{self.rule}: {self.text} ({self.call} at {self.where}{often})"


@dataclass(frozen=True)
class Leak:
    """Something that was made and not destroyed. `size` in bytes, 0 for what has none; `device` -1: of no device."""

    kind: str
    handle: int
    size: int
    device: int
    where: str

    def __str__(self) -> str:
        if self.kind == "init":
            return f"acl.init without acl.finalize, called at {self.where}"
        if self.kind == "device":
            return f"device {self.handle}, set at {self.where}"
        size = f" of {counted(self.size, 'byte')}" if self.size else ""
        device = f" on device {self.device}" if self.device >= 0 else ""
        name = f"{self.handle:#x}" if self.handle > 0xFFFF else str(self.handle)
        return f"{self.kind} {name}{size}{device}, made at {self.where}"


@dataclass(frozen=True)
class Report:
    """What a program left behind and what it did that hardware forbids. False when there is nothing of either."""

    leaks: tuple[Leak, ...]
    violations: tuple[Violation, ...]

    def __bool__(self) -> bool:
        return bool(self.leaks or self.violations)

    def __str__(self) -> str:
        lines = []
        if self.leaks:
            lines.append(f"{len(self.leaks)} not released:")
            lines += [f"  {leak}" for leak in self.leaks]
        if self.violations:
            uses = "use" if len(self.violations) == 1 else "uses"
            lines.append(f"{len(self.violations)} {uses} that hardware forbids or leaves undefined:")
            lines += [f"  {violation}" for violation in self.violations]
        return "\n".join(lines)


def counted(number: int, what: str) -> str:
    """``1 event``, ``2 events``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Site:
    """A line of the program, of which the text is made when somebody asks: most are never told."""

    __slots__ = ("_at", "_code")

    def __init__(self, frame: FrameType) -> None:
        self._code = frame.f_code
        self._at = frame.f_lasti

    def __str__(self) -> str:
        code, line = self._code, self._code.co_firstlineno
        for start, end, number in code.co_lines():
            if start <= self._at < end and number is not None:
                line = number
        return f"{code.co_filename}:{line} in {code.co_name}"


_PROGRAM, _OURS, _OUTER, _STANDARD = range(4)
_files: dict[str, int] = {}


def _kind(file: str) -> int:
    if file.startswith(_HERE):
        kind = _OURS if file.startswith(_INNER) else _OUTER
    elif file.startswith("<frozen") or (file.startswith(_LIBRARY) and not file.startswith(_PACKAGES)):
        kind = _STANDARD
    else:
        kind = _PROGRAM
    _files[file] = kind
    return kind


def _nearest() -> FrameType:
    """The nearest frame of the program; on a thread of aioascend's own, the nearest that says what it was doing."""
    frame: FrameType | None = sys._getframe(2)
    outer = standard = None
    while frame is not None:
        file = frame.f_code.co_filename
        kind = _files.get(file)
        if kind is None:
            kind = _kind(file)
        if kind == _PROGRAM:
            return frame
        if kind == _OUTER:
            outer = outer or frame
        elif kind == _STANDARD:
            standard = standard or frame
        frame = frame.f_back
    return outer or standard or sys._getframe(2)


def here() -> Site:
    """Where the program is."""
    return Site(_nearest())


def call_site() -> str:
    """Where the nearest caller outside aioascend is: ``prog.py:12 in run``.

    What a thread of aioascend's own does is done in no line of the program's: it is the nearest one in aioascend above
    the emulator and the driver.
    """
    return str(Site(_nearest()))


def raised_at(trace: TracebackType | None) -> str:
    """The line in the program's function that was called from here: ``prog.py:12 in callback``."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_HERE):
            return f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return "a function that is not Python"


class Findings:
    """The violations of one emulator, and where things were made.

    In strict mode a violation fails the call where it can; else it is logged once per rule and line.
    """

    def __init__(self, strict: bool, trace: bool) -> None:
        self.strict = strict
        self.trace = strict or trace
        self._lock = threading.RLock()
        self._violations: dict[tuple[str, str, str], Violation] = {}
        # the how manieth thing it was that was made, and where
        self._sites: dict[tuple[str, int], tuple[int, str]] = {}
        self._made = itertools.count()

    @property
    def violations(self) -> tuple[Violation, ...]:
        """All violations, in the order of their first occurrence."""
        with self._lock:
            return tuple(self._violations.values())

    def note(
        self,
        rule: str,
        call: str,
        text: str,
        code: int = 0,
        where: str | None = None,
        quiet: bool = False,
        once: bool = False,
        against: str = "",
    ) -> None:
        """Something forbidden happened in `call`. With a `code`, strict mode lets the call fail with it.

        `quiet`: it is in the log already. `once`: the log gets the rule's first line only. `against`: another line that
        takes part in it, so that the same with a third line is told too.
        """
        if where is None:
            where = call_site()
        with self._lock:
            old = self._violations.get((rule, where, against))
            quiet = quiet or old is not None or (once and any(known == rule for known, _, _ in self._violations))
            self._violations[rule, where, against] = (
                Violation(rule, call, text, where) if old is None else replace(old, times=old.times + 1)
            )
        if not quiet:
            logger.warning("%s: %s (%s at %s)", rule, text, call, where)
        if code and self.strict:
            raise Failure(code, f"{rule}: {text}")

    def callback_raised(self, call: str, error: BaseException) -> None:
        """A function of the program let an exception out into `call`: the traceback is logged at once."""
        where = raised_at(error.__traceback__)
        text = f"a callback raised {type(error).__name__}: {error}"
        logger.error("callback-raised: %s (%s at %s)", text, call, where, exc_info=error)
        self.note("callback-raised", call, text, where=where, quiet=True)

    def made(self, kind: str, handle: int) -> None:
        """Remember where something was made (only with strict or trace: it costs a walk up the stack)."""
        if self.trace:
            self._sites[kind, handle] = next(self._made), call_site()

    def forked(self) -> None:
        """In a forked child: a thread that is not here may hold the lock; what was noted is the parent's to tell."""
        self._lock = threading.RLock()
        self._violations = {}

    def site(self, kind: str, handle: int) -> str:
        """Where something was made."""
        return self._sites.get((kind, handle), (0, UNKNOWN))[1]

    def in_order(self, leaks: Iterable[Leak]) -> tuple[Leak, ...]:
        """Sorted by when the things were made; those of which that is not known stay as they are."""
        sites = self._sites
        return tuple(sorted(leaks, key=lambda leak: sites.get((leak.kind, leak.handle), (0, ""))[0]))
