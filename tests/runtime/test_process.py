"""Who shares a device of the process: users are counted, and one that failed to open is replaced by the next."""

from __future__ import annotations

import threading

import pytest

import aioascend
from aioascend.driver import DeviceName
from aioascend.emulator import Emulator
from aioascend.runtime import process
from aioascend.runtime.core import DeviceCore
from tests.scenarios.programs import run
from tests.session.test_under_faults import Books

NAME = DeviceName("emulator", 0)


def acquire() -> DeviceCore:
    core, started = process.acquire(NAME)
    started.result(10)
    return core


def test_the_last_user_closes_the_device(emulator: Emulator) -> None:
    books = Books(emulator)
    one, other = acquire(), acquire()
    assert one is other
    process.retain(one)
    for _ in range(2):
        process.leave(one)
        assert process.open_devices() == (one,)
    process.leave(one)
    assert process.open_devices() == ()
    books.assert_balanced()
    with pytest.raises(aioascend.SessionClosed, match="emulator:0 is closed"):
        process.retain(one)
    process.leave(one)  # there is nothing to leave any more


def test_a_device_that_did_not_open_is_opened_anew_for_the_next_while_others_have_yet_to_leave_it(
    emulator: Emulator,
) -> None:
    books = Books(emulator)
    emulator.faults.fail("acl.rt.set_device", 507899)
    failed, started = process.acquire(NAME)
    assert isinstance(started.exception(10), aioascend.AclError)
    well = acquire()
    assert well is not failed
    assert process.open_devices() == (well,)
    process.retain(failed)
    process.leave(failed)
    process.leave(failed)
    assert process.open_devices() == (well,)
    process.leave(well)
    assert process.open_devices() == ()
    books.assert_balanced()


def test_a_shutdown_waits_for_a_device_that_is_being_closed(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, go, closing = acquire(), threading.Event(), threading.Event()
    stop = core.stop

    def slowly() -> None:
        closing.set()
        assert go.wait(10)
        stop()

    monkeypatch.setattr(core, "stop", slowly)
    leaving = threading.Thread(target=process.leave, args=(core,))
    leaving.start()
    assert closing.wait(10)
    assert process.open_devices() == ()
    with monkeypatch.context() as patch:
        patch.setattr(process, "_SHUTDOWN_S", 0.01)
        with pytest.raises(aioascend.AioascendError, match="still being closed"):
            aioascend.shutdown()
    threading.Timer(0.05, go.set).start()
    aioascend.shutdown()
    leaving.join(10)
    assert emulator.report().leaks == ()  # acl.init has been undone, and the strict emulator saw nothing after it


def test_a_forked_child_that_drops_an_inherited_array_gives_nothing_back_and_says_nothing() -> None:
    done = run("""
        device = aioascend.Device("emulator:0")
        asyncio.run(device.open())
        buffer = asyncio.run(device.malloc_host(64))
        array = buffer.array
        array[:] = 7
        asyncio.run(buffer.release())
        pid = os.fork()
        if pid == 0:
            assert (array == 7).all()
            del array
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), (array == 7).all())
        del array
        asyncio.run(device.aclose())
    """)
    assert (done.code, done.lines, done.err) == (0, ["3 True"], "")
