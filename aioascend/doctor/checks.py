"""What a check is: a fact that we rely on, where the reference has it, what it says, and how to see for oneself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .bench import Bench

__all__ = ["Check", "Failed", "Group", "Row", "Seen", "Unavailable", "Verdict"]

Verdict = Literal["ok", "differs", "unavailable", "hung"]


class Unavailable(Exception):
    """The fact cannot be seen here; the text says why."""


class Failed(Exception):
    """A call that the check needs did not succeed; the text is what was seen."""


@dataclass(frozen=True)
class Seen:
    """What was seen: `text` is compared with what was expected, `note` is for the reader alone."""

    text: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.note})" if self.note else self.text


@dataclass(frozen=True)
class Row:
    """The outcome of one check. `reference` names the section of the pyACL reference that has the fact."""

    group: str
    fact: str
    reference: str
    expected: str
    seen: str
    verdict: Verdict

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """One fact. `look` sees it on a bench; it may take `seconds`. An `expected` of "" means that anything will do."""

    group: str
    fact: str
    reference: str
    expected: tuple[str, ...]
    look: Callable[[Bench], str | Seen]
    seconds: float

    def row(self, seen: str, verdict: Verdict) -> Row:
        """The row for this outcome."""
        return Row(self.group, self.fact, self.reference, " or ".join(filter(None, self.expected)), seen, verdict)

    def run(self, bench: Bench) -> Row:
        """Look, and judge what was seen."""
        try:
            with bench:
                seen = self.look(bench)
        except Unavailable as reason:
            return self.row(str(reason), "unavailable")
        except Failed as failed:
            return self.row(str(failed), "differs")
        except AttributeError as error:
            module = getattr(error.obj, "__name__", "")
            if module != "acl" and not module.startswith("acl."):
                return self.row(f"{type(error).__name__}: {error}", "differs")
            return self.row(f"there is no {module}.{error.name} here", "unavailable")
        except Exception as error:
            return self.row(f"{type(error).__name__}: {error}", "differs")
        text = seen.text if isinstance(seen, Seen) else seen
        return self.row(str(seen), "ok" if text in self.expected or self.expected == ("",) else "differs")


class Group:
    """Checks that share a process, in their order. With `opens` the device is open when they begin."""

    def __init__(self, name: str, *, opens: bool = True) -> None:
        self.name = name
        self.opens = opens
        self.checks: list[Check] = []

    def check(
        self, fact: str, reference: str, *expected: str, seconds: float = 6.0
    ) -> Callable[[Callable[[Bench], str | Seen]], Callable[[Bench], str | Seen]]:
        """Make a check of a function."""

        def note(look: Callable[[Bench], str | Seen]) -> Callable[[Bench], str | Seen]:
            self.checks.append(Check(self.name, fact, reference, expected or ("",), look, seconds))
            return look

        return note
