"""Ways in which a driver may differ from what is believed of it: each is given the `acl` module of a child process."""

from __future__ import annotations

import os
import signal
import time
from typing import Any


def waits_for_others(acl: Any) -> None:
    """A stream waits for every other stream."""
    synchronize = acl.rt.synchronize_stream

    def synchronize_all(stream: int) -> int:
        acl.rt.synchronize_device()
        return int(synchronize(stream))

    acl.rt.synchronize_stream = synchronize_all


def hangs(acl: Any) -> None:
    """One call never returns."""

    def for_ever() -> tuple[int, int]:
        time.sleep(3600)
        return 0, 0

    acl.rt.get_stream_available_num = for_ever


def crashes(acl: Any) -> None:
    """One call ends the process."""

    def crash() -> tuple[int, int]:
        print("something went wrong in the vendor's library", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0, 0

    acl.rt.get_stream_available_num = crash


def lacks(acl: Any) -> None:
    """A function is missing."""
    del acl.rt.get_stream_available_num


def is_old(acl: Any) -> None:
    """There are no events of the modern flavour."""
    del acl.rt.create_event_ex_with_flag


def init_hangs(acl: Any) -> None:
    """Initialising never returns."""

    def init() -> int:
        time.sleep(3600)
        return 0

    acl.init = init


def cannot_be_opened(acl: Any) -> None:
    """The device cannot be set up."""
    acl.rt.set_device = lambda index: 507033


def has_other_codes(acl: Any) -> None:
    """A mistake has another code, an old number of another is used, and a call raises."""
    acl.rt.set_context = _with(acl.rt.set_context, lambda context: 107002 if context == 0 else None)
    launch = acl.rt.launch_callback
    acl.rt.launch_callback = lambda *args: {107015: 100034}.get(code := launch(*args), code)

    def unload(model: int) -> int:
        raise RuntimeError("unload raised")

    acl.mdl.unload = unload


def _with(function: Any, instead: Any) -> Any:
    def altered(value: int) -> Any:
        code = instead(value)
        return function(value) if code is None else code

    return altered


def has_no_c_library(acl: Any) -> None:
    """There is pyACL alone."""
    del acl.__native__


def always_holds_the_gil(acl: Any) -> None:
    """As older binaries may: waiting for a report holds the GIL."""
    from aioascend.emulator import gil

    report = acl.rt.process_report

    def process_report(timeout: int) -> int:
        gil.sleep(timeout / 1e3)
        return int(report(1))

    acl.rt.process_report = process_report
