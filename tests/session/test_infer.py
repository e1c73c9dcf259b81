"""`await session.infer(x)`: the right answer, for whatever array is given."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto

import aioascend
from aioascend.emulator import Emulator
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

VALUES = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4) - 7

LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C order": lambda x: x,
    "Fortran order": np.asfortranarray,
    "NHWC seen as NCHW": lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "every second of a larger array": lambda x: _embed(x, 2),
    "reversed last axis": lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
    "reversed first axes": lambda x: np.ascontiguousarray(x[:, ::-1, ::-1])[:, ::-1, ::-1],
    "column block of a wider array": lambda x: np.concatenate([x, x, x], axis=-1)[..., 4:8],
    "read-only": lambda x: _read_only(x.copy()),
    "misaligned": lambda x: _misaligned(x),
    "array subclass": lambda x: x.view(_Subclass),
}


class _Subclass(np.ndarray):
    pass


def _embed(x: np.ndarray, step: int) -> np.ndarray:
    wide = np.full([size * step for size in x.shape], np.nan, x.dtype)
    part = wide[tuple(slice(None, None, step) for _ in x.shape)]
    part[...] = x
    return part


def _read_only(x: np.ndarray) -> np.ndarray:
    x.setflags(write=False)
    return x


def _misaligned(x: np.ndarray) -> np.ndarray:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    view = raw[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    assert not view.flags.aligned
    return view


@pytest.mark.loops
async def test_the_answer_is_right_on_every_loop_and_completion_way() -> None:
    async with aioascend.Session(kit.pos()) as session:
        for offset in range(5):
            outputs = await session.infer(VALUES + offset)
            np.testing.assert_array_equal(outputs["y"], (VALUES + offset) * kit.POS_WEIGHT)


@pytest.mark.loops
async def test_2000_concurrent_callers_of_one_loop_get_their_own_answers() -> None:
    async with aioascend.Session(kit.add(1), max_waiting=4096) as session:
        inputs = [np.full(4, i, np.float32) for i in range(2000)]
        results = await asyncio.gather(*(session.infer(x) for x in inputs))
    assert [result[0].tolist() for result in results] == [[i + 1.0] * 4 for i in range(2000)]
    assert session.statistics().completed == 2000


def test_8_threads_with_loops_of_their_own_share_one_session() -> None:
    session = aioascend.Session(kit.add(1))
    wrong: list[object] = []

    async def work(number: int) -> None:
        for i in range(40):
            value = number * 1000 + i
            results = await asyncio.gather(*(session.infer(np.full(4, value + k / 8, np.float32)) for k in range(4)))
            wrong.extend(r for k, r in enumerate(results) if r[0].tolist() != [value + k / 8 + 1.0] * 4)

    with session:
        threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.statistics().completed == 8 * 40 * 4
    assert wrong == []


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_any_layout_gives_the_answer_of_the_contiguous_copy(layout: str) -> None:
    async with aioascend.Session(kit.pos()) as session:
        given = LAYOUTS[layout](VALUES)
        before = np.array(given)
        outputs = await session.infer(given)
        np.testing.assert_array_equal(outputs[0], VALUES * kit.POS_WEIGHT)
        np.testing.assert_array_equal(given, before)


async def test_mixed_layouts_at_once() -> None:
    async with aioascend.Session(kit.pos()) as session:
        cases = [(i, name) for i in range(50) for name in LAYOUTS]
        results = await asyncio.gather(*(session.infer(LAYOUTS[name](VALUES + i)) for i, name in cases))
        for (i, name), outputs in zip(cases, results, strict=True):
            np.testing.assert_array_equal(outputs[0], (VALUES + i) * kit.POS_WEIGHT, err_msg=name)


async def test_a_broadcast_array_and_a_memory_map(tmp_path: object) -> None:
    async with aioascend.Session(kit.pos()) as session:
        row = np.arange(4, dtype=np.float32)
        outputs = await session.infer(np.broadcast_to(row, (1, 2, 3, 4)))
        np.testing.assert_array_equal(outputs[0][0], row * kit.POS_WEIGHT)
        path = f"{tmp_path}/x.bin"
        VALUES.tofile(path)
        outputs = await session.infer(np.memmap(path, np.float32, "r", shape=VALUES.shape))
        np.testing.assert_array_equal(outputs[0], VALUES * kit.POS_WEIGHT)


HARD = {
    TensorProto.FLOAT16: np.array([65504, 6e-8, np.inf, np.nan, -0.0, 1], np.float16),
    TensorProto.DOUBLE: np.array([1e308, 5e-324, np.pi, -np.inf, np.nan, 0]),
    TensorProto.INT64: np.array([2**53 + 1, -(2**63), 2**63 - 1, -1, 0, 1]),
    TensorProto.INT32: np.array([2**31 - 1, -(2**31), -1, 0, 1, 2], np.int32),
    TensorProto.INT16: np.array([32767, -32768, -1, 0, 1, 2], np.int16),
    TensorProto.INT8: np.array([127, -128, -1, 0, 1, 2], np.int8),
    TensorProto.UINT8: np.array([255, 128, 0, 1, 2, 3], np.uint8),
    TensorProto.UINT16: np.array([65535, 0, 1, 2, 3, 4], np.uint16),
    TensorProto.UINT32: np.array([2**32 - 1, 0, 1, 2, 3, 4], np.uint32),
    TensorProto.UINT64: np.array([2**64 - 1, 2**53 + 1, 0, 1, 2, 3], np.uint64),
    TensorProto.BOOL: np.array([True, False, True, True, False, False]),
}


@pytest.mark.parametrize("kind", HARD, ids=TensorProto.DataType.Name)
async def test_every_dtype_comes_back_bit_for_bit(kind: int) -> None:
    values = HARD[kind].reshape(2, 3)
    async with aioascend.Session(kit.identity(kind)) as session:
        assert session.inputs[0].dtype == values.dtype
        result = (await session.infer(values))[0]
    assert result.dtype == values.dtype
    assert result.tobytes() == values.tobytes()


async def test_bfloat16_comes_back_as_ml_dtypes_bfloat16() -> None:
    import ml_dtypes

    values = np.array([[1, 3.14159, 1e38], [np.nan, -0.0, 2]]).astype(ml_dtypes.bfloat16)
    async with aioascend.Session(kit.identity(TensorProto.BFLOAT16)) as session:
        result = (await session.infer(values))[0]
    assert result.dtype == values.dtype
    assert result.tobytes() == values.tobytes()


async def test_several_inputs_and_outputs_by_index_and_by_name() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    async with aioascend.Session(kit.several()) as session:
        assert [str(spec) for spec in session.inputs] == ["a: float32[2, 3]", "k: int64[]"]
        by_name = await session.infer({"k": np.array(3), "a": a})
        in_order = await session.infer([a, np.array(3)])
        with_a_number = await session.infer({"a": a, "k": 3})
    for outputs in (by_name, in_order, with_a_number):
        assert outputs.keys() == ("half", "ints", "flag", "total")
        assert len(outputs) == 4
        assert [array.dtype.name for array in outputs] == ["float16", "int64", "bool", "float32"]
        assert outputs["ints"].tolist() == [3, 4, 5, 6, 7]
        assert outputs[2].tolist() == [True]
        assert outputs["total"].shape == ()
        assert float(outputs[-1]) == 15.0
        assert dict(outputs.items())["half"].tolist() == a.tolist()
    with pytest.raises(KeyError, match="no output is named 'nothing'; there are half, ints, flag, total"):
        by_name["nothing"]
    with pytest.raises(IndexError):
        by_name[4]


async def test_a_result_belongs_to_the_caller() -> None:
    async with aioascend.Session(kit.add(1)) as session:
        first = await session.infer(np.zeros(4, np.float32))
        kept = [await session.infer(np.full(4, i, np.float32)) for i in range(200)]
        assert first[0].tolist() == [1] * 4
        first[0][:] = 99
        assert (await session.infer(np.zeros(4, np.float32)))[0].tolist() == [1] * 4
    assert [outputs[0][0] for outputs in kept] == [i + 1 for i in range(200)]


async def test_an_array_without_another_reference_lives_until_it_was_read_and_no_longer() -> None:
    async with aioascend.Session(kit.identity(TensorProto.FLOAT, (1 << 20,))) as session:  # 4 MiB: the copy worker
        x = np.arange(1 << 20, dtype=np.float32)
        gone = weakref.ref(x)
        task = asyncio.create_task(session.infer(x))
        await asyncio.sleep(0)
        del x
        outputs = await task
        del task
        assert outputs[0][-1] == (1 << 20) - 1
        assert gone() is None


@pytest.mark.parametrize("instances", [1, 3])
async def test_any_number_of_instances_gives_the_same_answers(instances: int) -> None:
    async with aioascend.Session(kit.pos(), instances=instances, depth=2) as session:
        results = await asyncio.gather(*(session.infer(VALUES + i) for i in range(60)))
        for i, outputs in enumerate(results):
            np.testing.assert_array_equal(outputs[0], (VALUES + i) * kit.POS_WEIGHT)


@pytest.mark.parametrize("depth", [1, 2, 5])
async def test_any_depth_gives_the_same_answers(depth: int) -> None:
    async with aioascend.Session(kit.add(1), depth=depth) as session:
        results = await asyncio.gather(*(session.infer(np.full(4, i, np.float32)) for i in range(40)))
        assert [outputs[0][0] for outputs in results] == [i + 1 for i in range(40)]


def test_infer_sync_answers_in_a_plain_thread_and_refuses_to_block_a_loop() -> None:
    with aioascend.Session(kit.add(1)) as session:
        assert session.infer_sync(np.zeros(4, np.float32))[0].tolist() == [1] * 4

        async def inside() -> None:
            with pytest.raises(aioascend.BlockingCallInLoop, match=r"use `await session\.infer"):
                session.infer_sync(np.zeros(4, np.float32))
            # ... but a thread beside the loop may
            result = await asyncio.to_thread(session.infer_sync, np.ones(4, np.float32))
            assert result[0].tolist() == [2] * 4

        asyncio.run(inside())


@pytest.mark.emulated(ex_events=False)
async def test_old_cann_without_ex_events_gives_the_same_answers(emulator: Emulator) -> None:
    assert not hasattr(emulator.acl.rt, "create_event_ex_with_flag")
    async with aioascend.Session(kit.pos()) as session:
        results = await asyncio.gather(*(session.infer(VALUES + i) for i in range(40)))
        for i, outputs in enumerate(results):
            np.testing.assert_array_equal(outputs[0], (VALUES + i) * kit.POS_WEIGHT)
