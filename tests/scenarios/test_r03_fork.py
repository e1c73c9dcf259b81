"""R03: device state and threads do not exist in a forked child: it is told so at once, and the parent is unharmed.

Whatever forks: `os.fork`, multiprocessing, a pre-fork web server. The child's exit runs none of the parent's clean-up.
What a child opens itself works on the emulator, and is refused on an NPU that the parent had initialised.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests import kit
from tests.scenarios.programs import commanded, get, run, run_file

CHILDREN = """
import multiprocessing
from aioascend.testing import stubbed

ONES = np.ones(4, np.float32)

def refusal(call):
    started = time.monotonic()
    try:
        call()
    except aioascend.ForkedProcess as error:
        assert "forked" in str(error) and "Open the session after the fork" in str(error) and "spawn" in str(error)
        return "refused" if time.monotonic() - started < 1 else "refused late"
    return "not refused"

def child(session, device, ticket):
    said = []
    for call in (lambda: session.infer_sync(ONES), lambda: asyncio.run(session.infer(ONES)),
                 lambda: asyncio.run(session.submit(ONES)), lambda: session.request(), session.open_sync,
                 lambda: asyncio.run(device.create_stream())):
        said.append(refusal(call))
    session.close_sync()
    asyncio.run(session.aclose())
    asyncio.run(device.aclose())
    said.append(session.ready)
    with aioascend.Session(sys.argv[2]) as own:
        said.append(float(own.infer_sync(ONES)[0][0]))
    print(*said, flush=True)

def unrelated(path):
    with aioascend.Session(path) as own:
        print("spawned", float(own.infer_sync(ONES)[0][0]), flush=True)

def wait_for(pid, seconds=20):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return "hangs"

def main():
    session = aioascend.Session(sys.argv[1])
    session.open_sync()
    session.infer_sync(ONES)
    device = aioascend.Device("emulator:0")
    asyncio.run(device.open())
    ticket = None

    def parent(what, code):
        print(what, code, float(session.infer_sync(ONES)[0][0]), flush=True)

    pid = os.fork()  # ends normally, exit hooks and all
    if pid == 0:
        child(session, device, ticket)
        sys.exit(7)
    parent("fork", wait_for(pid))

    for name in ("fork", "spawn"):
        context = multiprocessing.get_context(name)
        arguments = (session, device, ticket) if name == "fork" else (sys.argv[2],)
        process = context.Process(target=child if name == "fork" else unrelated, args=arguments)
        process.start()
        process.join(20)
        parent(name, process.exitcode)

    with stubbed() as stub:  # in the place of an NPU
        with aioascend.Session(stub.model, devices="npu:0") as npu:
            pid = os.fork()
            if pid == 0:
                used = stub.total
                other = aioascend.Session(stub.model, devices="npu:0")
                print(refusal(lambda: npu.infer_sync(ONES)), refusal(other.open_sync), stub.total - used, flush=True)
                sys.exit(8)
            parent("npu", wait_for(pid))
            npu.infer_sync(ONES)
    asyncio.run(device.aclose())
    session.close_sync()

if __name__ == "__main__":
    main()
"""


def test_children_of_every_kind_are_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    models = []
    for constant in (1, 5):
        models.append(tmp_path / f"{constant}.onnx")
        models[-1].write_bytes(kit.add(constant))
    done = run_file(tmp_path / "program.py", CHILDREN, *map(str, models))
    refused = " ".join(["refused"] * 6) + " False 6.0"
    assert done.err == ""
    assert done.lines == [
        refused, "fork 7 2.0",
        refused, "fork 0 2.0",
        "spawned 6.0", "spawn 0 2.0",
        "refused refused 0", "npu 8 2.0",
    ]  # fmt: skip
    assert done.code == 0


SERVER = """
import os
import numpy as np
import aioascend
from fastapi import FastAPI

ONES = np.ones(4, np.float32)
session = aioascend.Session(os.environ["MODEL"])
session.open_sync()  # in the process that forks
assert session.infer_sync(ONES)[0][0] == 2

def fresh():
    return aioascend.Session(os.environ["MODEL"])

async def inherited():
    try:
        await session.infer(ONES)
    except aioascend.AioascendError as error:
        return {"error": type(error).__name__, "text": str(error), "pid": os.getpid()}

async def own():
    async with fresh() as mine:
        return {"value": float((await mine.infer(ONES))[0][0])}

app = FastAPI()
app.get("/inherited")(inherited)
app.get("/own")(own)
"""


def test_gunicorn_with_preload_says_so_in_its_workers_and_ends_when_told(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    (tmp_path / "model.onnx").write_bytes(kit.add(1))
    (tmp_path / "preloaded.py").write_text(SERVER)
    socket = tmp_path / "socket"
    command = [sys.executable, "-m", "gunicorn", "--preload", "-w", "2", "-k", "asgi", "--bind", f"unix:{socket}"]
    command += ["--no-control-socket", "--chdir", str(tmp_path), "preloaded:app"]
    with commanded(command, {"MODEL": str(tmp_path / "model.onnx")}) as server:
        for _ in range(4):
            said = get(socket, "/inherited").json()
            assert said["error"] == "ForkedProcess"
            assert "Open the session after the fork" in said["text"]
            assert said["pid"] != server.process.pid
            assert get(socket, "/own").json() == {"value": 2.0}
        server.send(signal.SIGTERM)
        done = server.finish(timeout=20)
        assert done.code == 0
        assert "Traceback" not in done.err
        assert "SIGKILL" not in done.err  # the workers ended by themselves
        assert server.leftovers() == []


def test_a_child_forked_while_a_session_opens_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(kit.add(1))
    done = run(
        """
        for delay in (0, 0.01, 0.1):
            session = aioascend.Session(sys.argv[1])
            opener = threading.Thread(target=session.open_sync)
            opener.start()
            time.sleep(delay)
            child = os.fork()
            if child == 0:
                try:
                    session.open_sync()
                except aioascend.ForkedProcess as error:
                    print("refused", flush=True)
                session.close_sync()
                os._exit(5)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            opener.join()
            print(session.infer_sync(np.ones(4, np.float32))[0][0], flush=True)
            session.close_sync()
        """,
        str(tmp_path / "model.onnx"),
    )
    assert (done.out, done.err, done.code) == ("refused\n5\n2.0\n" * 3, "", 0)


def test_forks_while_another_thread_opens_and_closes_do_not_hang(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(kit.add(1))
    done = run(
        """
        def work():
            for _ in range(20):
                with aioascend.Session(sys.argv[1]) as session:
                    session.infer_sync(np.ones(4, np.float32))
        worker = threading.Thread(target=work)
        worker.start()
        codes = set()
        while worker.is_alive():
            child = os.fork()
            if child == 0:
                os._exit(5)
            codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(codes)
        """,
        str(tmp_path / "model.onnx"),
    )
    assert (done.out, done.err, done.code) == ("{5}\n", "", 0)


def test_leaving_the_block_of_an_inherited_session_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(kit.add(1))
    done = run(
        """
        ONES = np.ones(4, np.float32)
        with aioascend.Session(sys.argv[1]) as session:
            session.infer_sync(ONES)
            if child := os.fork():
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), session.infer_sync(ONES)[0][0])
        """,
        str(tmp_path / "model.onnx"),
    )
    assert (done.out, done.err, done.code) == ("0 2.0\n", "", 0)
