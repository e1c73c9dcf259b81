"""R38: numpy 1.26 and 2.x give the same answers, and no helper that pyACL withdraws is called.

The suite runs on the numpy that is installed. Where the variable AIOASCEND_OTHER_NUMPY names a directory that
``pip install --target`` filled with another one, a subset runs on that too, in an interpreter of its own.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

import aioascend
from tests import kit
from tests.scenarios.programs import run

OTHER = os.environ.get("AIOASCEND_OTHER_NUMPY")

SUBSET = """
from tests.scenarios import test_r04_any_layout as layouts
from tests.scenarios import test_r06_dtypes_and_several_outputs as dtypes
from tests import kit

def check(given, wanted):
    assert (given.dtype, given.shape, given.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes()), given

async def main():
    async with aioascend.Session(kit.pos()) as session:
        for name, layout in layouts.LAYOUTS.items():
            check((await session.infer(layout(layouts.VALUES)))[0], layouts.ANSWER)
        results = [outputs async for outputs in session.map(layouts.VALUES + np.float32(i) for i in range(20))]
        assert len(results) == 20
        async with session.request() as request:
            request.inputs["x"][:] = layouts.VALUES
            check((await request.run())["y"], layouts.ANSWER)
        for wrong in (layouts.VALUES.astype(np.float64), layouts.VALUES[0], "text", None, [[1.0, [2.0]]]):
            try:
                await session.infer(wrong)
            except aioascend.InvalidInput:
                continue
            raise AssertionError(wrong)
    for kind, values in dtypes.HARD.items():
        async with aioascend.Session(kit.identity(kind)) as session:
            check((await session.infer(values.reshape(2, 3)))[0], values.reshape(2, 3))
    large = np.arange(1 << 20, dtype=np.float32)
    async with aioascend.Session(kit.identity(1, (1 << 20,))) as session:
        check((await session.infer(large[::-1]))[0], large[::-1].copy())

asyncio.run(main())
print(np.__version__)
"""


@pytest.mark.skipif(not OTHER, reason="AIOASCEND_OTHER_NUMPY names no directory with another numpy")
def test_a_subset_on_another_numpy() -> None:
    assert OTHER is not None
    path = os.pathsep.join([OTHER, str(Path(__file__).parents[2])])
    done = run(SUBSET, extra={"PYTHONPATH": path})
    assert (done.err, done.code) == ("", 0)
    assert done.lines[-1] != np.__version__


async def test_a_pyacl_without_the_withdrawn_helpers_is_enough(emulator: object) -> None:
    util = emulator.acl.util  # type: ignore[attr-defined]
    for name in ("ptr_to_numpy", "numpy_to_ptr", "numpy_contiguous_to_ptr"):
        delattr(util, name)
    x = np.zeros(4, np.float32)
    async with aioascend.Session(kit.add(1)) as session:
        results = await asyncio.gather(*(session.infer(x + i) for i in range(20)))
        assert [outputs[0][0] for outputs in results] == [i + 1 for i in range(20)]
