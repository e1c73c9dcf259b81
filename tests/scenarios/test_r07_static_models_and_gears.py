"""R07: a size that the model was not built for is refused by name, and never answered with rows of another size.

Gears are not offered yet: what a session does with a model that has them is to say so when it is opened. Exact gears,
padding and the answer for unknown ones come with them.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aioascend
from tests import kit

pytestmark = pytest.mark.usefixtures("emulator")


def rows(n: int) -> np.ndarray:
    return np.arange(n * 24, dtype=np.float32).reshape(n, 2, 3, 4)


async def test_a_static_model_refuses_every_other_batch_and_names_its_own(standing) -> None:
    async with aioascend.Session(kit.pos()) as session, standing(session, rows(1), rows(1) * kit.POS_WEIGHT):
        for n in (0, 2, 3, 4, 9):
            with pytest.raises(aioascend.InvalidInput, match=rf"of shape \(1, 2, 3, 4\), given .*\({n}, 2, 3, 4\)"):
                await session.infer(rows(n))
        results = await asyncio.gather(*(session.infer(rows(1 + i % 2)) for i in range(40)), return_exceptions=True)
        for i, result in enumerate(results):
            if i % 2:
                assert isinstance(result, aioascend.InvalidInput)
            else:
                assert not isinstance(result, BaseException)
                np.testing.assert_array_equal(result[0], rows(1) * kit.POS_WEIGHT)


async def test_open_axes_that_were_fixed_are_as_static(standing) -> None:
    answer = rows(4) * kit.POS_WEIGHT
    async with (
        aioascend.Session(kit.pos("n"), shapes={"x": (4, 2, 3, 4)}) as session,
        standing(session, rows(4), answer),
    ):
        for n in (0, 1, 3, 8):
            with pytest.raises(aioascend.InvalidInput, match=rf"of shape \(4, 2, 3, 4\), given .*\({n}, 2, 3, 4\)"):
                await session.infer(rows(n))


@pytest.mark.parametrize("model", [kit.dyn(), kit.hw(), kit.pos("n")], ids=["batch gears", "picture gears", "open"])
async def test_a_model_of_several_sizes_says_at_open_what_to_do(model: bytes) -> None:
    with pytest.raises(aioascend.ModelLoadError) as caught:
        await aioascend.Session(model).open()
    assert "shapes" in str(caught.value)
    async with aioascend.Session(kit.pos()) as session:  # and nothing is harmed
        np.testing.assert_array_equal((await session.infer(rows(1)))[0], rows(1) * kit.POS_WEIGHT)
