"""Which exception a code becomes, and the class that says what to do about it (pyACL reference §15)."""

from __future__ import annotations

import pickle
from types import ModuleType

import pytest

from aioascend.driver import Backend
from aioascend.driver.calls import Driver
from aioascend.driver.codes import CODES, ErrorClass
from aioascend.errors import AclError, DeviceLost, ExecutionFailed, OutOfMemory


@pytest.fixture(scope="module")
def driver() -> Driver:
    acl = ModuleType("acl")
    acl.rt = ModuleType("acl.rt")  # type: ignore[attr-defined]
    return Driver(Backend("emulator", acl), "emulator:0")


@pytest.mark.parametrize(
    "code, kind, error_class",
    [
        (107000, AclError, "caller"),
        (145013, AclError, "caller"),
        (200000, OutOfMemory, "overload"),
        (207001, OutOfMemory, "overload"),
        (207018, OutOfMemory, "overload"),
        (245000, OutOfMemory, "overload"),
        (245002, OutOfMemory, "overload"),
        (207005, AclError, "overload"),
        (207007, AclError, "overload"),
        (207008, AclError, "overload"),
        (107019, AclError, "timeout"),
        (107020, AclError, "timeout"),
        (507012, AclError, "timeout"),
        (507046, AclError, "timeout"),
        (507047, AclError, "timeout"),
        (545601, AclError, "timeout"),
        (507011, ExecutionFailed, "internal"),
        (507015, ExecutionFailed, "device_lost"),
        (507034, ExecutionFailed, "device_lost"),
        (507010, DeviceLost, "device_lost"),
        (507054, DeviceLost, "device_lost"),
        (507899, DeviceLost, "device_lost"),
        (507999, ExecutionFailed, "internal"),  # not listed: told by its digits
        (500000, AclError, "internal"),
        (545000, AclError, "internal"),
    ],
)
def test_a_code_becomes_an_exception_that_tells_its_class(
    driver: Driver, code: int, kind: type[AclError], error_class: str
) -> None:
    error = driver.error(code, "acl.rt.malloc")
    assert type(error) is kind
    assert (error.code, error.error_class) == (code, error_class)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.error_class, str(copy)) == (kind, error_class, str(error))


def test_kinds_and_classes_agree_for_every_code(driver: Driver) -> None:
    for code, info in CODES.items():
        error = driver.error(code, "acl.rt.malloc")
        assert error.error_class == info.error_class.value
        if isinstance(error, OutOfMemory):
            assert info.error_class is ErrorClass.OVERLOAD, code
        if isinstance(error, DeviceLost):
            assert info.error_class is ErrorClass.DEVICE_LOST, code
        if isinstance(error, ExecutionFailed):
            assert info.error_class in (ErrorClass.INTERNAL, ErrorClass.DEVICE_LOST), code
        if info.error_class is ErrorClass.DEVICE_LOST:
            assert isinstance(error, (DeviceLost, ExecutionFailed)), code
