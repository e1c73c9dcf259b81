"""R23: two users of ACL in one process: closing one never takes ACL, or the device, from the other."""

from __future__ import annotations

import numpy as np
import pytest

import aioascend
from aioascend.testing import stubbed

X = np.zeros(4, np.float32)


def test_a_session_closes_beside_a_session() -> None:
    with stubbed() as stub:
        a, b = (aioascend.Session(stub.model, devices="npu:0") for _ in range(2))
        a.open_sync()
        b.open_sync()
        a.close_sync()
        assert b.infer_sync(X)[0].shape == (4,)
        with pytest.raises(aioascend.AioascendError, match="close every session first: npu:0 in use"):
            aioascend.shutdown()
        assert b.infer_sync(X)[0].shape == (4,)
        b.close_sync()
        assert stub.counts["acl.finalize"] == 0
        aioascend.shutdown()
        assert stub.counts["acl.finalize"] == 1
        stub.assert_balanced()


@pytest.mark.parametrize("first", ["they", "we"])
def test_a_session_closes_beside_somebody_elses_program(first: str) -> None:
    with stubbed() as stub:
        acl = stub.acl
        session = aioascend.Session(stub.model, devices="npu:0")
        if first == "we":
            session.open_sync()
        assert acl.init() == (100002 if first == "we" else 0)
        assert acl.rt.set_device(0) == 0
        stream, ret = acl.rt.create_stream()
        assert ret == 0
        if first == "they":
            session.open_sync()
        session.infer_sync(X)
        session.close_sync()
        assert acl.rt.synchronize_stream(stream) == 0  # their stream, their context, their device
        assert (acl.rt.destroy_stream(stream), acl.rt.reset_device(0)) == (0, 0)
        aioascend.shutdown()
        assert stub.counts["acl.finalize"] == (1 if first == "we" else 0)
        stub.assert_balanced()
