"""What hardware forbids, leaves undefined or leaks: noted with the program's own line; errors in strict mode."""

from __future__ import annotations

import logging
import os
import sys
import threading
from dataclasses import dataclass

from .args import Failure

logger = logging.getLogger("aioascend.emulator")
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclass(frozen=True)
class Finding:
    """One forbidden use: what kind, a sentence, and the program's line that did it."""

    kind: str
    text: str
    where: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text} (at {self.where})"


@dataclass(frozen=True)
class Leak:
    """Something that was made and not destroyed; `where` is known in strict mode."""

    kind: str
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what} was not freed (made at {self.where})"


def call_site() -> str:
    """File and line of the nearest caller outside the emulator."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Findings:
    """The findings of one emulator. In strict mode a forbidden use fails; else it is logged once per kind and line."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self._lock = threading.Lock()
        self._seen: set[tuple[str, str]] = set()
        self._entries: list[Finding] = []
        self._sites: dict[tuple[str, int], str] = {}

    @property
    def entries(self) -> tuple[Finding, ...]:
        """All findings, in order."""
        return tuple(self._entries)

    def note(self, kind: str, text: str, code: int = 0) -> None:
        """Something forbidden happened. With a `code`, strict mode lets the call fail with it."""
        where = call_site()
        with self._lock:
            new = (kind, where) not in self._seen
            self._seen.add((kind, where))
            if new or self.strict:
                self._entries.append(Finding(kind, text, where))
        if new:
            logger.warning("%s: %s (at %s)", kind, text, where)
        if code and self.strict:
            raise Failure(code, f"{kind}: {text}")

    def made(self, kind: str, handle: int) -> None:
        """Remember where something was made (strict mode only: it costs a walk up the stack)."""
        if self.strict:
            self._sites[kind, handle] = call_site()

    def site(self, kind: str, handle: int) -> str:
        """Where something was made."""
        return self._sites.get((kind, handle), "an unknown place: strict mode remembers it")

    def gone(self, kind: str, handle: int) -> None:
        """Forget where something was made."""
        if self.strict:
            self._sites.pop((kind, handle), None)
