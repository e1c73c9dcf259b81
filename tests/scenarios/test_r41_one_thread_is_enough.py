"""R41: an emulator whose ONNX Runtime has one thread works, and no outcome is lost in a native callback."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aioascend
from tests import kit
from tests.scenarios.programs import run


@pytest.mark.usefixtures("emulator")
@pytest.mark.emulated(intra_op_threads=1, concurrent_executes=1)
@pytest.mark.loops
async def test_answers_and_failures_with_one_thread(standing) -> None:
    good = np.array([1])
    async with aioascend.Session(kit.out_of_bounds()) as session, standing(session, good, np.array([11], np.float32)):
        given = [9 if i % 5 == 0 else i % 4 for i in range(100)]
        results = await asyncio.gather(*(session.infer(np.array([i])) for i in given), return_exceptions=True)
        for index, result in zip(given, results, strict=True):
            if index == 9:
                assert isinstance(result, aioascend.ExecutionFailed)
            else:
                assert not isinstance(result, BaseException)
                assert result[0].tolist() == [10 + index]


def test_a_program_with_one_thread_and_one_core_does_not_end_before_its_answers(tmp_path: object) -> None:
    path = f"{tmp_path}/model.onnx"
    with open(path, "wb") as file:
        file.write(kit.slow(10, 200))
    done = run(
        """
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        async def main():
            async with aioascend.Session(sys.argv[1]) as session:
                eye = np.eye(200, dtype=np.float32)
                results = await asyncio.gather(*(session.infer(eye * i) for i in range(20)))
                print([float(outputs[0][0, 0]) for outputs in results] == list(range(20)))
        asyncio.run(main())
        print("end")
        """,
        path,
        extra={"AIOASCEND_EMULATOR_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert (done.lines, done.err, done.code) == (["True", "end"], "", 0)
