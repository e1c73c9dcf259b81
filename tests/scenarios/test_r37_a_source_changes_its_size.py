"""R37: frames of another size than the model's fail one by one with a clear error, and the source recovers.

Switching between gears as a camera changes its resolution comes with gears and video streams, which are not offered
yet; what a static model does with such a source is.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")


def frame(height: int, width: int, value: int) -> np.ndarray:
    return np.full((1, 3, height, width), value, np.float32)


async def test_64x64_then_others_and_back(standing) -> None:
    sizes = [(64, 64)] * 20 + [(96, 128)] * 10 + [(64, 64)] * 10 + [(65, 64), (64, 64), (0, 64)] + [(64, 64)] * 10
    good = frame(64, 64, 1)
    async with (
        aioascend.Session(kit.hw(), shapes={"x": (1, 3, 64, 64)}) as session,
        standing(session, good, 2 * good),
    ):
        tasks = [asyncio.create_task(session.infer(frame(*size, value))) for value, size in enumerate(sizes)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for value, (size, result) in enumerate(zip(sizes, results, strict=True)):
            if size == (64, 64):
                assert not isinstance(result, BaseException)
                np.testing.assert_array_equal(result[0], frame(64, 64, 2 * value))
            else:
                assert isinstance(result, aioascend.InvalidInput)
                assert f"wanted float32 of shape (1, 3, 64, 64), given float32 of shape {(1, 3, *size)}" in str(result)
        assert session.statistics().failed == 0
