"""Which exception a code becomes, and the class that says what to do about it (pyACL reference §15)."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType, SimpleNamespace

import pytest

from aioascend import errors
from aioascend.driver import Backend
from aioascend.driver.calls import Driver
from aioascend.driver.codes import CODES, ErrorClass
from aioascend.errors import AclError, AioascendError, DeviceLost, ExecutionFailed, ModelLoadError, OutOfMemory, again


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


class _Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)


def _raised(error: AioascendError, cause: Exception) -> AioascendError:
    try:
        try:
            raise cause
        except Exception as caught:
            raise error from caught
    except AioascendError as caught:
        return caught


def test_a_copy_of_an_error_and_of_what_caused_it_has_no_frames() -> None:
    lost = _raised(DeviceLost(507010, "name", "meaning", "call", "npu:0"), OSError(2, "no such file"))
    error = _raised(ModelLoadError("the model", path="a.om"), lost)
    twin = again(error)
    assert type(twin) is ModelLoadError
    assert (str(twin), twin.path) == ("the model", "a.om")
    cause = twin.__cause__
    assert isinstance(cause, DeviceLost)
    assert (cause.code, str(cause)) == (507010, str(lost))
    assert repr(cause.__cause__) == repr(lost.__cause__)
    assert cause.__cause__ is not None
    assert [one.__traceback__ for one in (twin, cause, cause.__cause__)] == [None] * 3
    assert error.__traceback__ is not None
    assert error.__cause__ is lost


@pytest.mark.parametrize("version", [(3, 10), (3, 11)])
def test_a_copy_of_an_error_has_the_notes_of_the_original_and_then_its_own(
    version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "sys", SimpleNamespace(version_info=min(version, sys.version_info[:2])))
    error = DeviceLost(507010, "name", "meaning", "call", "npu:0")
    errors.add_note(error, "first")
    twin = again(error)
    errors.add_note(twin, "second")
    said = ["\n".join([str(one), *getattr(one, "__notes__", [])]) for one in (error, twin)]
    assert ["first" in one for one in said] == [True, True]
    assert ["second" in one for one in said] == [False, True]


def test_a_cause_that_cannot_be_copied_is_not_kept() -> None:
    assert again(_raised(AioascendError("it failed"), _Odd(1, 2))).__cause__ is None
