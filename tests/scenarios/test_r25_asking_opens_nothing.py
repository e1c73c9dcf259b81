"""R25: importing, listing devices and asking for an NPU initialise nothing: a process may ask, and fork afterwards."""

from __future__ import annotations

from aioascend.testing import stubbed
from tests.scenarios.programs import run

PROGRAM = """
from aioascend import cli, driver
from aioascend.testing import StubDriver

stub = StubDriver(devices=2)
driver.install(driver.Backend("npu", stub.acl))  # what `import acl` would have brought

assert driver.npu_available()
print([device.name for device in aioascend.devices() if device.kind == "npu"])
print(repr(aioascend.Session(stub.model, devices="npu:1")), repr(aioascend.Device("npu:0")))
cli.main(["devices"])
print(stub.counts["acl.init"], stub.counts["acl.rt.set_device"], stub.counts["acl.rt.create_context"], stub.live())
sys.stdout.flush()
child = os.fork()
with aioascend.Session(stub.model, devices="npu:1") as session:
    shape = session.infer_sync(np.zeros(4, np.float32))[0].shape
    print("child" if child == 0 else "parent", shape, flush=True)
if child:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_import_list_ask_and_then_fork_and_open_on_both_sides() -> None:
    done = run(PROGRAM)
    assert (done.err, done.code) == ("", 0)
    assert done.lines[0] == "['npu:0', 'npu:1']"
    assert done.lines[1] == "<aioascend.Session <256 bytes> on npu:1: new> <aioascend.Device npu:0: new>"
    assert "0 0 0 ()" in done.lines
    assert sorted(done.lines[-3:-1]) == ["child (4,)", "parent (4,)"]
    assert done.lines[-1] == "0"


def test_a_session_that_was_made_and_never_opened_has_called_nothing() -> None:
    import aioascend

    with stubbed() as stub:
        session = aioascend.Session(stub.model, devices="npu:0")
        assert not session.ready
        session.close_sync()
        assert stub.total == 0
