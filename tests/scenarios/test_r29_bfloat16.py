"""R29: bfloat16 comes as `ml_dtypes.bfloat16`, or one sentence says what is missing; never as raw uint16."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from onnx import TensorProto

import aioascend
from aioascend.driver import constants
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")

VALUES = np.array([1, 3.14159, 1e38, np.nan, -0.0, 2], np.float32)


async def test_out_as_bfloat16_and_back_in() -> None:
    import ml_dtypes

    async with aioascend.Session(kit.through_bfloat16(6)) as session:
        outputs = await session.infer(VALUES)
        assert outputs["half"].dtype == ml_dtypes.bfloat16
        wanted = VALUES.astype(ml_dtypes.bfloat16)
        assert outputs["half"].tobytes() == wanted.tobytes()
        np.testing.assert_array_equal(outputs["back"], wanted.astype(np.float32))
    async with aioascend.Session(kit.identity(TensorProto.BFLOAT16)) as session:
        again = (await session.infer(outputs["half"].reshape(2, 3)))[0]
        assert (again.dtype, again.tobytes()) == (wanted.dtype, wanted.tobytes())
        for raw in (np.zeros((2, 3), np.uint16), np.zeros((2, 3), np.float32)):
            with pytest.raises(aioascend.InvalidInput, match="wanted bfloat16"):
                await session.infer(raw)


async def test_without_ml_dtypes_the_open_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    constants._bfloat16.cache_clear()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(aioascend.ModelLoadError, match="pip install ml_dtypes"):
        await aioascend.Session(kit.identity(TensorProto.BFLOAT16)).open()
    x = np.zeros(4, np.float32)
    async with aioascend.Session(kit.add(1)) as session:  # other models do not need it
        assert (await session.infer(x))[0][0] == 1
