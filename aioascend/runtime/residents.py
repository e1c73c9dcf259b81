"""Who has something in a device's context, and what is asked of them when it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..driver import codes
from ..driver.codes import ErrorClass
from ..errors import AclError, AioascendError, DeviceLost
from ..scheduling.health import Severity
from ..scheduling.watchdog import Sight

if TYPE_CHECKING:
    from .lane import Lane
    from .request import Request

__all__ = ["Casualty", "Resident", "severity", "shared_by"]


def severity(error: BaseException | None) -> Severity:
    """How far a failure reaches, by the grouping of pyACL reference §15."""
    if isinstance(error, AioascendError) and not isinstance(error, AclError):
        error = error.__cause__  # such as a model that could not be loaded
    if isinstance(error, DeviceLost):
        return Severity.DEVICE
    if isinstance(error, AclError) and codes.describe(error.code).error_class is ErrorClass.DEVICE_LOST:
        return Severity.CONTEXT
    return Severity.TASK


def shared_by(error: AclError, requests: int) -> AclError:
    """A copy of `error` for one of several requests, saying so."""
    detail = error.detail
    if requests > 1:
        note = (
            f"{requests} requests were unconfirmed on this stream, and ACL does not tell which of them failed: "
            "all of them get this error, and any of them may be repeated"
        )
        detail = f"{detail}; {note}" if detail else note
    return type(error)(error.code, error.name, error.meaning, error.call, error.device, detail)


@dataclass
class Casualty:
    """A request that was on the device when its context died."""

    resident: Resident
    request: Request
    error: AclError | None  # what it failed with, if that is known
    suspect: bool  # it may have been the one that killed the context


class Resident(Protocol):
    """Whoever has something in a device's context: a session, or a `Device` with its streams and buffers."""

    @property
    def at_rest(self) -> bool:
        """Nothing of it is on the device or being copied; device thread."""

    @property
    def worked(self) -> int:
        """How many requests have worked so far."""

    def knows(self, request: Request) -> bool:
        """Whether it has the request; device thread."""

    def give_up_lost(self, error: AclError) -> None:
        """Fail every request that an interrupted step has lost track of; device thread."""

    def sights(self) -> dict[Lane, Sight]:
        """What the watchdog sees of its lanes; device thread."""

    def hold(self) -> None:
        """Start nothing more on the device; device thread."""

    def retire(self, cause: AclError | None) -> list[Casualty]:
        """Let go of what is on the device and hand it over, oldest first; device thread."""

    def recall(self, innocent: list[Request]) -> None:
        """Put these, and what had been made ready for the device, back in line; device thread, copies are over."""

    def save(self) -> None:
        """Copy out of pinned memory what requests in line need again; control thread."""

    def dismantle(self) -> None:
        """Give back everything in the context; control thread. A second call does nothing."""

    def restore(self) -> None:
        """Make it anew in the present context; control thread. What it raises is this resident's alone."""

    def resume(self) -> None:
        """Go on; device thread."""

    def refuse(self, error: AioascendError) -> None:
        """Fail everything that waits, and what comes until `resume`, with copies of `error`; device thread."""

    def fail(self, request: Request, error: AioascendError) -> None:
        """The request, which was handed over, has failed; device thread."""

    def run_alone(self, request: Request, then: Callable[[], None]) -> None:
        """Run a request that was handed over while nothing else is on the device; `then` follows its end."""
