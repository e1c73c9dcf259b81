"""R39: a server that is killed leaves nothing that its successor trips over, and a device in use explains itself."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

import aioascend
from aioascend.testing import stubbed
from tests import kit
from tests.scenarios.programs import running

SERVER = """
session = aioascend.Session(sys.argv[1])
session.open_sync()
async def serve():
    x = np.ones(4, np.float32)
    while True:
        outputs = await asyncio.gather(*(session.infer(x) for _ in range(8)))
        if outputs[0][0][0] == 2:
            print("serving", flush=True)
asyncio.run(serve())
"""


@pytest.mark.slow
def test_killed_20_times_while_it_serves(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(kit.add(1))
    before = shared_memory()
    for _ in range(5):
        with contextlib.ExitStack() as stack:  # four at a time, which is quicker
            servers = [stack.enter_context(running(SERVER, str(path))) for _ in range(4)]
            for server in servers:
                assert server.line() == "serving"
                server.send(signal.SIGKILL)
            for server in servers:
                done = server.finish()
                assert (done.code, done.err) == (-signal.SIGKILL, "")
                assert server.leftovers() == []
    assert shared_memory() == before


def shared_memory() -> set[str]:
    """What a process could leave behind for others to see."""
    directory = Path("/dev/shm")
    return {path.name for path in directory.iterdir() if "aioascend" in path.name} if directory.is_dir() else set()


def test_a_device_that_others_hold_says_what_it_may_be() -> None:
    with stubbed() as stub:
        stub.fail("acl.rt.set_device", 507033)
        with pytest.raises(aioascend.AclError, match="the device did not start: often in use") as caught:
            aioascend.Session(stub.model, devices="npu:0").open_sync()
        said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
        assert "the number of processes that a device takes (64; 32 in a virtual machine)" in said
        stub.assert_balanced()
