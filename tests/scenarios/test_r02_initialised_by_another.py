"""R02: ACL is initialised once a process, by whoever comes first.

100002 from `acl.init` means that somebody else did it: we go on, and never finalise what is not ours. What we
initialised is finalised once, by `aioascend.shutdown()` and by nothing else: others of the process may share it.
"""

from __future__ import annotations

import numpy as np
import pytest

import aioascend
from aioascend.testing import StubDriver, stubbed

X = np.zeros(4, np.float32)


def use(stub: StubDriver) -> None:
    with aioascend.Session(stub.model, devices="npu:0") as session:
        assert session.infer_sync(X)[0].shape == (4,)


def test_somebody_elses_initialisation_and_device_are_used_and_left_alone() -> None:
    with stubbed() as stub:
        acl = stub.acl
        assert (acl.init(), acl.rt.set_device(0)) == (0, 0)
        theirs, ret = acl.rt.get_context()
        assert ret == 0
        use(stub)
        use(stub)
        aioascend.shutdown()
        assert [call.code for call in stub.log if call.function == "acl.init"][:2] == [0, 100002]
        assert stub.counts["acl.finalize"] == 0
        assert stub.counts["acl.rt.set_device"] - 1 == stub.counts["acl.rt.reset_device"] == 2  # ours
        assert acl.rt.set_context(theirs) == 0  # their device was not reset under them
        assert acl.rt.reset_device(0) == 0
        stub.assert_balanced()


def test_two_sessions_and_every_later_one_share_one_initialisation_until_the_shutdown() -> None:
    with stubbed() as stub:
        for _ in range(2):
            first = aioascend.Session(stub.model, devices="npu:0")
            second = aioascend.Session(stub.model, devices="npu:0")
            first.open_sync()
            second.open_sync()
            first.close_sync()
            assert second.infer_sync(X)[0].shape == (4,)
            second.close_sync()
            assert stub.counts["acl.finalize"] == 0
        assert stub.counts["acl.init"] == 1
        aioascend.shutdown()
        aioascend.shutdown()
        finalized = [call.number for call in stub.log if call.function == "acl.finalize"]
        assert len(finalized) == 1
        assert finalized[0] == max(call.number for call in stub.log)  # nothing was called after it
        stub.assert_balanced()


def test_after_a_shutdown_everything_can_be_opened_again() -> None:
    with stubbed() as stub:
        for count in (1, 2, 3):
            use(stub)
            aioascend.shutdown()
            assert (stub.counts["acl.init"], stub.counts["acl.finalize"]) == (count, count)
        stub.assert_balanced()


@pytest.mark.parametrize("code, name", [(100000, "ACL_ERROR_INVALID_PARAM"), (500000, "ACL_ERROR_INTERNAL_ERROR")])
def test_any_other_code_is_told_with_its_number_its_name_and_the_call(code: int, name: str) -> None:
    with stubbed() as stub:
        stub.fail("acl.init", code)
        with pytest.raises(aioascend.AclError) as caught:
            aioascend.Session(stub.model, devices="npu:0").open_sync()
        assert (caught.value.code, caught.value.name, caught.value.call) == (code, name, "acl.init")
        for part in (str(code), name, "acl.init", "npu:0"):
            assert part in str(caught.value)
        use(stub)  # the next open tries again
        stub.assert_balanced()
