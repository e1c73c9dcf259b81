"""What exists once a process: ACL's initialisation, the open devices, and what becomes of them at fork and at exit."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  (its fork hooks must not appear in the middle of somebody's fork)
import ctypes
import os
import sys
import threading
import time
import weakref
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..driver import Backend, DeviceName, Driver, backend, known, refuse, restore
from ..errors import AioascendError, ForkedProcess, SessionClosed
from .background import join_all
from .core import DeviceCore

__all__ = [
    "acquire", "before_open", "check_forks", "closes_over", "exiting", "forks", "leave", "open_devices", "retain",
    "shutdown",
]  # fmt: skip

_FORKED = (
    "this process was forked from one that had opened {what}: device state and threads do not exist in a forked "
    'child. Open the session after the fork, or start workers with the "spawn" method.'
)


@dataclass
class _Use:
    name: DeviceName
    core: DeviceCore
    started: Future[None]
    users: int = 0


_lock = threading.RLock()
_uses: dict[DeviceName, _Use] = {}
_closing: set[Future[None]] = set()  # closes of devices that nobody uses any more, until they are over
_former: list[_Use] = []  # uses that a new one has replaced, until their last user leaves
# acl module -> whether we initialised it. Weak, because a test's double must not live as long as the process.
_initialised: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
_forks = 0
_alive: weakref.WeakSet[DeviceCore] = weakref.WeakSet()  # with threads, or to be collected
_exiting = False
_CLOSING_S = 1.5  # what is being opened or closed at interpreter exit may take so long
_JOIN_S = 1.2
_SHUTDOWN_S = 10.0  # how long `shutdown` waits for a device that is being closed


def acquire(name: DeviceName) -> tuple[DeviceCore, Future[None]]:
    """Join the users of a device, opening it for the first one.

    Never blocks: the future ends when the device is open, with the error of the failing call if it is not. Every
    `acquire` is undone by one `leave`, a failed one too.
    """
    found: Backend = backend(name.kind)
    with _lock:
        use = _uses.get(name)
        if use is not None and (use.core.driver.acl is not found.acl or _failed(use.started)):
            _former.append(_uses.pop(name))  # those who came for it have yet to leave it
            use = None
        if use is None:
            atexit.unregister(_before_exit)
            atexit.register(_before_exit)  # once more, as the backend is there now
            core = DeviceCore(name, found)
            _alive.add(core)
            use = _uses[name] = _Use(name, core, core.control(core.start, _initialise))
        use.users += 1
        return use.core, use.started


def _failed(started: Future[None]) -> bool:
    return started.done() and started.exception() is not None


def retain(core: DeviceCore) -> None:
    """One user more of a device that is open or closing: what undoes it is another `leave`."""
    with _lock:
        for use in (*_uses.values(), *_former):
            if use.core is core:
                use.users += 1
                return
    raise SessionClosed(f"{core.name} is closed")


def leave(core: DeviceCore) -> None:
    """Undo one `acquire`; the last user closes the device. Blocks; not for its own threads."""
    stopped = _leave(core)
    if stopped is not None:
        stopped.result()
        core.join()


def _leave(core: DeviceCore) -> Future[None] | None:
    with _lock:
        for use in (*_uses.values(), *_former):
            if use.core is core:
                use.users -= 1
                if use.users:
                    return None
                if use in _former:
                    _former.remove(use)
                else:
                    _uses.pop(use.name)
                stopped = core.control(core.stop)
                _closing.add(stopped)
                stopped.add_done_callback(_closing.discard)
                return stopped
    return None


def closes_over(seconds: float) -> bool:
    """Wait for the closes that go on by themselves, for so many seconds at most: whether there is none any more."""
    return not wait(list(_closing), timeout=seconds).not_done


def open_devices() -> tuple[DeviceCore, ...]:
    """The devices that are open now."""
    with _lock:
        return tuple(use.core for use in _uses.values())


def _initialise(driver: Driver) -> None:
    with _lock:
        acl = driver.acl
        if acl not in _initialised:
            _initialised[acl] = driver.init()


def shutdown() -> None:
    """De-initialise ACL where aioascend initialised it; every session and device must be closed.

    Closing the last session leaves ACL initialised, because others in the process may share it. Call this at the end
    of a program that is sure nobody does. What another library initialised (100002) is left alone. A later session
    initialises ACL anew. A close that goes on by itself (its session's last result was let go later) is waited for.
    Raises `AioascendError` while something is open.
    """
    closed = closes_over(_SHUTDOWN_S)
    with _lock:
        if not closed or _closing:
            raise AioascendError("a device is still being closed: call it again when that is over")
        if _uses:
            raise AioascendError(
                f"close every session first: {', '.join(map(str, _uses))} in use (arrays of a pinned request that are "
                "still alive keep it open too)"
            )
        ours = [acl for acl, by_us in _initialised.items() if by_us]
        _initialised.clear()
    for found in (known("npu"), known("emulator")):
        # A module that no longer serves any device (a test's double) is not ours to touch any more.
        if found is not None and any(acl is found.acl for acl in ours):
            Driver(found, found.kind).finalize()


def _forked_error(what: str) -> ForkedProcess:
    return ForkedProcess(_FORKED.format(what=what))


def forks() -> int:
    """How often the line of processes that led to this one was forked: differs from the parent's number."""
    return _forks


def check_forks(then: int, what: str) -> None:
    """Raise `ForkedProcess` if this process was forked since `forks` said `then`."""
    if then != _forks:
        raise _forked_error(what)


def exiting() -> bool:
    """Whether the interpreter goes down: every device was let go, and nothing can or need be closed any more."""
    return _exiting or sys.is_finalizing()


def before_open() -> None:
    """Have the exit of the interpreter wait for what is going to be opened; raises `SessionClosed` where it has come.

    A thread that the exit finds in the middle of an import or a load of ONNX Runtime takes the process down with it,
    and one that is started then never starts (CPython before 3.12).
    """
    if exiting():
        raise SessionClosed("the interpreter is exiting: no device can be opened any more")
    # Anew every time, so that it runs before the exit hooks of whatever the backends have brought by now.
    atexit.unregister(_before_exit)
    atexit.register(_before_exit)


def _before_exit() -> None:
    """Plain exit: our threads end, and nothing is de-initialised, for it may be others' (pyACL reference §4)."""
    global _exiting
    join_all(_CLOSING_S)
    _exiting = True
    cores = list(_alive)
    for core in cores:
        core.abandon()
    for emulator in {core.driver.backend.emulator for core in cores}:
        if emulator is not None:
            emulator.shutdown()  # ends a run under way, and lets those go that wait for it
    limit = time.monotonic() + _JOIN_S
    for core in cores:
        core.join_abandoned(limit)


def _in_forked_child() -> None:
    global _lock, _forks
    _forks += 1
    _lock = threading.RLock()  # another thread of the parent may have held it
    npu = known("npu")
    touched = npu is not None and npu.acl in _initialised
    for use in (*_uses.values(), *_former):
        touched = touched or use.name.kind == "npu"
        use.core.mark_forked(partial(_forked_error, use.core.name))
        _keep_for_ever(use.core.driver.backend)
    if touched:
        # Any call of pyACL may hang now, asking for the number of devices too.
        refuse("npu", partial(_forked_error, "the NPU"))
    _uses.clear()
    _former.clear()
    _closing.clear()
    _initialised.clear()
    _alive.clear()
    inherited = known("emulator")
    if inherited is not None:
        _keep_for_ever(inherited)
    restore("emulator", None)  # the child makes an emulator of its own: the threads of this one did not survive


def _keep_for_ever(found: Backend) -> None:
    # The destructors of an inherited emulator wait for threads that do not exist (ONNX Runtime ends the process there).
    if found.emulator is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(found.emulator))


os.register_at_fork(after_in_child=_in_forked_child)
