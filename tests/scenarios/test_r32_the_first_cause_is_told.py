"""R32: a device does not open: the first cause is the error, with the driver's words, whatever clean-up met."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import aioascend
from aioascend.testing import stubbed

X = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    "code, name",
    [
        (507033, "DEV_SETUP_ERROR"),
        (507008, "DRV_NULL_POINTER|DRV|DEVICE|"),
        (107001, "INVALID_DEVICEID"),
        (207001, "MEMORY_ALLOCATION"),
        (507899, "DRV_INTERNAL_ERROR"),
    ],
)
def test_set_device_fails(code: int, name: str) -> None:
    with stubbed() as stub:
        stub.fail("acl.rt.set_device", code)
        stub.fail("acl.rt.reset_device", 507007, times=None)
        with pytest.raises(aioascend.AclError) as caught:
            aioascend.Session(stub.model, devices="npu:0").open_sync()
        error = caught.value
        assert (error.code, error.call, error.device) == (code, "acl.rt.set_device", "npu:0")
        assert any(part in error.name for part in name.split("|"))
        assert "was told to fail" in error.detail
        said = "\n".join([str(error), *getattr(error, "__notes__", [])])
        assert "507007" not in said
        for hint in ("npu-smi info", "/dev/davinci0", "memory", "processes"):
            assert hint in said
        stub.clear()
        with aioascend.Session(stub.model, devices="npu:0") as session:
            session.infer_sync(X)
        stub.assert_balanced()


def test_whatever_fails_first_is_told_although_everything_fails_after_it() -> None:
    failed = 0
    for k in itertools.count(1):
        with stubbed() as stub:
            stub.fail_at(k, 507033)
            for name in ("rt.reset_device", "rt.destroy_context", "rt.destroy_stream", "mdl.unload", "rt.free_host"):
                stub.fail(name, 507007, times=None)
            session = aioascend.Session(stub.model, devices="npu:0", depth=1)
            error = _error_of(session.open_sync)
            first = next((call for call in stub.log if call.code == 507033), None)
            session.close_sync()
        if error is None and first is None:
            break
        if error is not None:  # a failing clean-up of a step that worked fails nothing
            failed += 1
            assert first is not None
            assert first.function in str(error)
            assert "507007" not in str(error).partition("\n")[0]
    assert failed > 20


def _error_of(call: Callable[[], None]) -> aioascend.AioascendError | None:
    try:
        call()
    except aioascend.AioascendError as error:
        return error
    return None
