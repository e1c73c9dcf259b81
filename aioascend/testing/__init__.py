"""For tests of programs that use aioascend or pyACL: an emulator or a stub of one's own, faults, and balanced books.

Two doubles, each in the place of a device for the length of a block:

* `emulated`: the emulator in strict mode. Right numbers, faults, time profiles; at the end it asserts that nothing
  leaked and nothing was done that hardware forbids.
* `stubbed`: a `StubDriver`, which computes nothing, counts every call and can fail at any of them.

`as_acl` lets code that says ``import acl`` find either; `emulator_fixture` and `stub_fixture` make pytest fixtures. For
example, in a test::

    from aioascend.testing import emulated

    def test_the_service_answers_after_an_ai_core_error(tmp_path):
        with emulated(faults="task.execute=507015"), aioascend.Session("model.onnx", devices="emulator:0") as session:
            with pytest.raises(aioascend.ExecutionFailed):
                session.infer_sync(x)
            assert session.infer_sync(x)["y"].shape == (1, 10)

Importing this package imports neither pytest nor onnxruntime.
"""

from .backends import assert_balanced, emulated, emulator_fixture, installed, stub_fixture, stubbed
from .modules import as_acl, install_as_acl
from .stub import Call, Live, StubDriver

__all__ = [
    "Call",
    "Live",
    "StubDriver",
    "as_acl",
    "assert_balanced",
    "emulated",
    "emulator_fixture",
    "install_as_acl",
    "installed",
    "stub_fixture",
    "stubbed",
]
