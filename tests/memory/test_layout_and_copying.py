"""How tensors share one block, and copies in pieces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aioascend.memory.copying import CHUNK, copy_array
from aioascend.memory.layout import plan


@given(st.lists(st.integers(0, 10_000), max_size=8))
def test_every_tensor_starts_aligned_and_has_its_room_to_itself(sizes: list[int]) -> None:
    layout = plan(sizes)
    ends = [0]
    for offset, size in zip(layout.offsets, sizes, strict=True):
        assert offset % 64 == 0
        assert offset >= ends[-1]
        ends.append(offset + -(-size // 32) * 32 + 32)
    assert layout.nbytes >= max(64, ends[-1])
    assert layout.sizes == tuple(sizes)


@given(
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=4, max_side=6)),
    st.integers(16, 200),
    st.sampled_from(["C", "F"]),
)
def test_a_copy_in_pieces_is_the_copy(array: np.ndarray, chunk: int, order: str) -> None:
    import aioascend.memory.copying as copying

    source = np.asarray(array, order=order)[..., ::-1]  # type: ignore[call-overload]
    target = np.full_like(np.ascontiguousarray(source), 99)
    old, copying.CHUNK = copying.CHUNK, chunk
    try:
        assert copy_array(target, source, lambda: False)
    finally:
        copying.CHUNK = old
    np.testing.assert_array_equal(target, source)


def test_a_stopped_copy_says_so_and_stops_early() -> None:
    source = np.ones(4 * CHUNK, np.uint8)
    target = np.zeros_like(source)
    looks = iter([False, False, True])
    assert not copy_array(target, source, lambda: next(looks))
    assert 0 < target.sum() < source.sum()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_scalars_and_empty_arrays(shape: tuple[int, ...]) -> None:
    target = np.zeros(shape, np.int64)
    assert copy_array(target, np.ones(shape, np.int64))
    assert (target == 1).all()
