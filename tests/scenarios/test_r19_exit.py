"""R19: whatever ends a program ends it within seconds, with the right exit code and nothing on stderr of ours.

A run of about four seconds is under way each time. Ctrl-C once and twice, SIGTERM, returning without a close, an
exception out of main, a web server told to stop, and one that reloads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from tests import kit
from tests.scenarios.programs import Done, Program, await_listening, commanded, get, running

T = TypeVar("T")

ENDED = 3.0
SETUP = """
EYE = np.eye(700, dtype=np.float32)
def began():
    print("running", flush=True)
"""
SLOW = """
async def main():
    async with aioascend.Session(sys.argv[1]) as session:
        task = asyncio.create_task(session.infer(EYE))
        asyncio.get_running_loop().call_later(0.3, began)
        await task
"""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model file whose run takes about four seconds."""
    path = tmp_path_factory.mktemp("models") / "slow.onnx"
    path.write_bytes(kit.slow(500))
    return str(path)


def in_time() -> float:
    """Seconds for an end: 3 where there are cores for it, so many times more where several programs share each."""
    return ENDED * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def ended(program: Program, *signals: int, pause: float = 0.3) -> Done:
    """Wait until the run is under way, send the signals, and see that it ended in time and left nothing."""
    assert program.line() == "running"
    for number, one in enumerate(signals):
        time.sleep(pause if number else 0)
        program.send(one)
    done = program.finish(timeout=20)
    assert done.seconds < in_time(), f"{done.seconds:.1f} s"
    assert program.leftovers() == []
    return done


def only_the_interrupt(err: str) -> None:
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "Exception ignored" not in err
    assert "never retrieved" not in err


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_in_a_coroutine(slow: str, times: int) -> None:
    with running(SETUP + SLOW + "asyncio.run(main())", slow) as program:
        done = ended(program, *[signal.SIGINT] * times)
    assert done.code == -signal.SIGINT
    only_the_interrupt(done.err)


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_in_a_plain_program(slow: str, times: int) -> None:
    body = (
        SETUP
        + """
with aioascend.Session(sys.argv[1]) as session:
    threading.Timer(0.3, began).start()
    session.infer_sync(EYE)
"""
    )
    with running(body, slow) as program:
        done = ended(program, *[signal.SIGINT] * times)
    assert done.code == -signal.SIGINT
    only_the_interrupt(done.err)


def test_clean_up_goes_on_to_its_end_though_its_task_is_cancelled(slow: str) -> None:
    body = (
        SETUP
        + """
async def main():
    session = aioascend.Session(sys.argv[1])
    await session.open()
    task = asyncio.create_task(session.infer(EYE))
    try:
        asyncio.get_running_loop().call_later(0.3, began)
        await task
    finally:
        await session.aclose(drain=False)
        print("closed", session.ready, aioascend.runtime.process.open_devices(), flush=True)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    aioascend.shutdown()
    print("finalised", flush=True)
"""
    )
    with running(body, slow) as program:
        done = ended(program, signal.SIGINT)
    assert (done.lines, done.err, done.code) == (["closed False ()", "finalised"], "", 0)


def test_sigterm_without_a_handler(slow: str) -> None:
    with running(SETUP + SLOW + "asyncio.run(main())", slow) as program:
        done = ended(program, signal.SIGTERM)
    assert (done.code, done.err) == (-signal.SIGTERM, "")


WAYS_OUT = {
    "main returns, the session is a global": (
        """
session = aioascend.Session(sys.argv[1])
async def main():
    await session.open()
    tasks.append(asyncio.create_task(session.infer(EYE)))
    await asyncio.sleep(0.3)
    began()
tasks = []
asyncio.run(main())
""",
        0,
        "",
    ),
    "main returns, the session is dropped": (
        """
async def main():
    session = aioascend.Session(sys.argv[1])
    await session.open()
    task = asyncio.create_task(session.infer(EYE))
    await asyncio.sleep(0.3)
    began()
asyncio.run(main())
""",
        0,
        "",
    ),
    "a plain program with a ticket in flight": (
        """
session = aioascend.Session(sys.argv[1])
session.open_sync()
ticket = asyncio.run(session.submit(EYE))
time.sleep(0.3)
began()
""",
        0,
        "",
    ),
    "an exception out of main, closed by its block": (
        """
async def fail():
    await asyncio.sleep(0.3)
    began()
    raise LookupError("the user's own")
async def main():
    async with aioascend.Session(sys.argv[1]) as session:
        await asyncio.gather(session.infer(EYE), fail())
asyncio.run(main())
""",
        1,
        "LookupError: the user's own",
    ),
    "sys.exit, not closed": (
        """
async def main():
    session = aioascend.Session(sys.argv[1])
    await session.open()
    task = asyncio.create_task(session.infer(EYE))
    await asyncio.sleep(0.3)
    began()
    sys.exit(5)
asyncio.run(main())
""",
        5,
        "",
    ),
    "an exit hook that closes, registered before the open": (
        """
import atexit
session = aioascend.Session(sys.argv[1])
atexit.register(session.close_sync)
session.open_sync()
ticket = asyncio.run(session.submit(EYE))
time.sleep(0.3)
began()
""",
        0,
        "",
    ),
    "an exit hook that closes, registered after the open": (
        """
import atexit
session = aioascend.Session(sys.argv[1])
session.open_sync()
atexit.register(session.close_sync, drain=False)
ticket = asyncio.run(session.submit(EYE))
time.sleep(0.3)
began()
""",
        0,
        "",
    ),
    "a daemon thread is inside infer_sync": (
        """
session = aioascend.Session(sys.argv[1])
session.open_sync()
threading.Thread(target=session.infer_sync, args=(EYE,), daemon=True).start()
time.sleep(0.3)
began()
""",
        0,
        "",
    ),
    "while a session opens": (
        """
session = aioascend.Session(sys.argv[1])
threading.Thread(target=session.open_sync, daemon=True).start()
time.sleep(0.02)
began()
""",
        0,
        "",
    ),
    "while a session closes": (
        """
session = aioascend.Session(sys.argv[1])
session.open_sync()
ticket = asyncio.run(session.submit(EYE))
threading.Thread(target=session.close_sync, daemon=True).start()
time.sleep(0.1)
began()
""",
        0,
        "",
    ),
}


def test_the_exit_waits_for_a_session_that_is_still_looking_for_its_backend(slow: str) -> None:
    """A thread that is ended in the middle of an import of ONNX Runtime would take the process down with it."""
    body = """
from aioascend import driver
def resolve(names, found=driver.resolve):
    time.sleep(0.3)
    print("found", flush=True)
    return found(names)
driver.resolve = resolve
session = aioascend.Session(sys.argv[1])
threading.Thread(target=session.open_sync, daemon=True).start()
time.sleep(0.1)
began()
"""
    with running(SETUP + body, slow) as program:
        done = ended(program)
    assert (done.code, done.out, done.err) == (0, "found\n", "")


@pytest.mark.parametrize("way", WAYS_OUT)
def test_ways_out_without_a_close(slow: str, way: str) -> None:
    body, code, last = WAYS_OUT[way]
    with running(SETUP + body, slow) as program:
        done = ended(program)
    assert done.code == code
    assert done.err.rstrip().rpartition("\n")[2] == last
    assert "Exception ignored" not in done.err


TOO_LATE = """
import atexit

def late(what, model=sys.argv[1]):
    for door in (aioascend.Session(model).open_sync, lambda: asyncio.run(aioascend.Device().open())):
        try:
            door()
        except aioascend.SessionClosed as error:
            print(what, error, flush=True)

class Late:
    def __del__(self, late=late):
        late("destructor")

late_object = Late()
atexit.register(late, "exit function")
asyncio.new_event_loop().close()  # what asyncio imports is not there any more when destructors run
with aioascend.Session(sys.argv[1]) as session:
    began()
"""


def test_what_is_opened_when_the_devices_were_let_go_is_refused(slow: str) -> None:
    with running(SETUP + TOO_LATE, slow) as program:
        done = ended(program)
    assert done.code == 0
    assert "exit function the interpreter is exiting" in done.out
    assert "destructor the interpreter is exiting" in done.out


SERVER = """
import contextlib, os, sys
import numpy as np
import aioascend

EYE = np.eye(700, dtype=np.float32)

class App:
    session = None
    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await self.lifespan(receive, send)
        else:
            if scope["path"] == "/slow":
                print("running", flush=True)
                await self.session.infer(EYE)
            body = str(os.getpid()).encode()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})

    async def lifespan(self, receive, send):
        await receive()
        async with aioascend.Session(os.environ["MODEL"]) as self.session:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        print("closed", aioascend.runtime.process.open_devices(), flush=True)
        await send({"type": "lifespan.shutdown.complete"})

app = App()
"""


def serve(directory: Path, *options: str) -> list[str]:
    (directory / "server.py").write_text(SERVER)
    command = [sys.executable, "-m", "uvicorn", "server:app", "--app-dir", str(directory), "--log-level", "warning"]
    return [*command, "--uds", str(directory / "socket"), *options]


def test_sigterm_to_a_web_server_whose_lifespan_closes_the_session(slow: str, tmp_path: Path) -> None:
    command = serve(tmp_path, "--timeout-graceful-shutdown", "1")
    with commanded(command, {"MODEL": slow}) as server:
        address = tmp_path / "socket"
        await_listening(address)
        client = threading.Thread(target=lambda: _ignoring(lambda: get(address, "/slow")))
        client.start()
        done = ended(server, signal.SIGTERM)
        client.join()
    assert done.lines == ["closed ()"]
    assert done.code in (0, -signal.SIGTERM)  # uvicorn raises the signal again once it has shut down
    assert "Exception ignored" not in done.err
    assert "never" not in done.err


def test_a_web_server_that_reloads_five_times_leaves_no_process_behind(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(kit.add(1))
    command = serve(tmp_path, "--reload", "--reload-dir", str(tmp_path), "--reload-delay", "0.05")
    seen = []
    with commanded(command, {"MODEL": str(tmp_path / "model.onnx"), "WATCHFILES_FORCE_POLLING": "1"}) as server:
        address = tmp_path / "socket"
        for _ in range(6):  # the first, and five that replace it
            limit = time.monotonic() + 20
            while (pid := _ignoring(lambda: get(address, "/").text)) in (None, *seen):  # or it is just going down
                assert time.monotonic() < limit, "it never reloaded"
                time.sleep(0.02)
            seen.append(pid)
            os.utime(tmp_path / "server.py", (time.time() + len(seen), time.time() + len(seen)))
        assert len(server.alive()) <= 4  # the supervisor, a server, one that ends or begins, a resource tracker
        server.send(signal.SIGINT)
        done = server.finish(timeout=20)
        assert done.seconds < in_time()
        assert server.leftovers() == []
    assert done.code == 0
    assert "Traceback" not in done.err


def _ignoring(call: Callable[[], T]) -> T | None:
    with contextlib.suppress(httpx.HTTPError):
        return call()
    return None


@pytest.mark.parametrize("completion", ["callback", "event"])
def test_plain_exit_joins_our_threads_and_closes_nothing(completion: str) -> None:
    body = """
    import atexit
    from aioascend.testing import StubDriver
    from aioascend import driver

    stub = StubDriver()

    @atexit.register
    def last():  # the first to be registered
        left = [thread.name for thread in threading.enumerate() if thread.name.startswith("aioascend")]
        print(left, stub.total - before, [stub.counts[name] for name in ("acl.finalize", "acl.rt.reset_device")])

    driver.install(driver.Backend("npu", stub.acl))
    session = aioascend.Session(stub.model, devices="npu:0")
    session.open_sync()
    device = aioascend.Device("npu:0")
    asyncio.run(device.open())
    large = aioascend.Session(stub.model, devices="npu:0", instances=2)
    large.open_sync()
    session.infer_sync(np.zeros(4, np.float32))

    @atexit.register
    def first():
        global before
        before = stub.total
    """
    with running(body, extra={"AIOASCEND_COMPLETION": completion}) as program:
        done = program.finish()
    left, _, rest = done.out.partition(" ")
    assert (left, rest.partition(" ")[2], done.err, done.code) == ("[]", "[0, 0]\n", "", 0)
    assert int(rest.partition(" ")[0]) <= 3  # waits that were under way
