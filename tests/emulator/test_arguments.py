"""Arguments are read, and results shaped, as a C extension does it (pyACL reference §2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .kit import Driver, doubler


def test_arguments_are_positional_only(acl: Any) -> None:
    with pytest.raises(TypeError, match=r"^acl\.rt\.malloc\(\)"):
        acl.rt.malloc(size=64, policy=0)


def test_functions_do_not_bind_as_methods(npu: Driver) -> None:
    class Program:
        allocate = npu.rt.malloc
        count = npu.rt.get_device_count

    assert Program().count() == Program.count() == (2, 0)
    assert Program().allocate(64, 0)[1] == 0
    assert npu.rt.malloc.__self__ is npu.rt


@pytest.mark.parametrize("arguments", [(), (64,), (64, 0, 0)])
def test_a_wrong_number_of_arguments_names_the_function(acl: Any, arguments: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match=r"acl\.rt\.malloc.*2 positional"):
        acl.rt.malloc(*arguments)


@pytest.mark.parametrize("stream", [None, 1.0, "0", b"0", np.int64(0)])
def test_a_handle_must_be_a_plain_int(npu: Driver, stream: object) -> None:
    with pytest.raises(TypeError, match=r"acl\.rt\.synchronize_stream.*stream"):
        npu.rt.synchronize_stream(stream)


def test_a_bytes_object_is_no_address(npu: Driver) -> None:
    with pytest.raises(TypeError, match="must be int, not bytes"):
        npu.rt.memcpy(b"abc", 3, b"def", 3, 0)


def test_numpy_integers_pass_for_model_ids_and_device_numbers(npu: Driver) -> None:
    model = npu.load(doubler())
    x = np.ones((2, 3), np.float32)
    given, taken, _ = npu.bind([x], [x])
    assert npu.mdl.execute(np.int64(model), given, taken) == 0
    assert npu.rt.set_device(np.int32(0)) == 0
    assert npu.rt.reset_device(np.uint8(0)) == 0


def test_a_32_bit_int_is_range_checked_and_an_unsigned_one_masked(acl: Any, npu: Driver) -> None:
    with pytest.raises(TypeError, match="32-bit"):
        acl.rt.set_device(1 << 31)
    model = npu.load(doubler())
    assert npu.mdl.get_desc(npu.mdl.create_desc(), model + (1 << 32)) == 0


def test_a_negative_size_wraps(npu: Driver) -> None:
    address, code = npu.rt.malloc(-1, 0)
    assert (address, code) == (0, 207001)


def test_a_bool_is_an_int(npu: Driver) -> None:
    assert npu.rt.synchronize_stream(False) == 0


def test_the_module_has_functions_and_no_constants(acl: Any) -> None:
    for module in (acl, acl.rt, acl.mdl, acl.util):
        public = [name for name in vars(module) if not name.startswith("_")]
        assert public
        assert not [name for name in public if name.isupper()]
    assert "bytes_to_ptr" in dir(acl.util)


def test_a_failed_call_gives_zero_or_an_empty_dict_before_its_code(acl: Any) -> None:
    assert acl.rt.create_stream() == (0, 107002)
    assert acl.mdl.get_input_dims(1, 0) == ({}, 100000)
    assert acl.mdl.get_num_inputs(1) == 0
    assert acl.mdl.get_input_name_by_index(1, 0) is None


def test_handles_are_unique_and_never_zero(npu: Driver) -> None:
    handles = [npu.context, npu.stream(), npu.ok(npu.rt.create_event()), npu.mdl.create_dataset()]
    handles += [npu.mdl.create_desc(), npu.acl.create_data_buffer(0, 0), npu.stream()]
    assert 0 not in handles
    assert len(set(handles)) == len(handles)


def test_a_handle_of_another_kind_gives_a_code(npu: Driver) -> None:
    stream, event = npu.stream(), npu.ok(npu.rt.create_event())
    assert npu.rt.synchronize_stream(event) == 107017
    assert npu.rt.record_event(stream, stream) == 107017
    assert npu.rt.set_context(stream) == 107002
    assert npu.mdl.destroy_dataset(stream) == 100000
    assert npu.acl.destroy_data_buffer(npu.mdl.create_dataset()) == 100000


def test_functions_may_be_taken_before_init_and_patched(acl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl.rt, "malloc", lambda size, policy: (1, 0))
    assert acl.rt.malloc(1, 0) == (1, 0)
