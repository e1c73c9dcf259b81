"""R30: a model with pre-processing built in (AIPP) wants raw pixels: its declared dtype and bytes are what counts."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aioascend
from aioascend.testing import stubbed

SHAPE = (1, 224, 224, 3)
NBYTES = 224 * 224 * 3


async def test_normalised_pictures_and_short_buffers_are_refused_and_raw_pixels_taken() -> None:
    raw = np.full(SHAPE, 255, np.uint8)
    with stubbed(inputs=[("image", "uint8", SHAPE)], outputs=[("y", "float32", (1, 10))]) as stub:
        async with aioascend.Session(stub.model, devices="npu:0") as session:
            (spec,) = session.inputs
            assert (spec.dtype.name, spec.shape, spec.nbytes) == ("uint8", SHAPE, NBYTES)
            before = stub.counts["acl.rt.memcpy_async"]
            for given, said in [
                ((raw / 255).astype(np.float32).transpose(0, 3, 1, 2), "given float32 of shape .1, 3, 224, 224."),
                ((raw / 255).astype(np.float32), "given float32"),
                (raw.transpose(0, 3, 1, 2), r"\(1, 3, 224, 224\); the element counts agree but the axes do not"),
                (raw.ravel()[:-1], rf"of shape \({NBYTES - 1},\)"),
                (raw.ravel(), rf"of shape \({NBYTES},\)"),
                (raw[:, :-1], r"\(1, 223, 224, 3\)"),
                (raw.view(np.int8), "given int8"),
            ]:
                wanted = r"input 'image': wanted uint8 of shape \(1, 224, 224, 3\).*"
                with pytest.raises(aioascend.InvalidInput, match=wanted + said):
                    await session.infer(given)
            assert stub.counts["acl.rt.memcpy_async"] == before
            results = await asyncio.gather(*(session.infer(raw) for _ in range(8)))
            assert {outputs[0].shape for outputs in results} == {(1, 10)}
        stub.assert_balanced()


async def test_a_driver_that_wants_other_bytes_than_the_shape_says_is_told_at_open() -> None:
    """What preparation makes of a picture in another pixel format shows as a size that is not the shape's."""
    with stubbed(inputs=[("image", "uint8", SHAPE)]) as stub:
        stub.acl.mdl.get_input_size_by_index = lambda desc, index: NBYTES // 2  # YUV420 of the same picture
        with pytest.raises(aioascend.ModelLoadError, match=f"'?image.* needs {NBYTES} bytes.* reports {NBYTES // 2}"):
            await aioascend.Session(stub.model, devices="npu:0").open()
        stub.assert_balanced()
