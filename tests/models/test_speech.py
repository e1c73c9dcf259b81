"""The speech detector knows speech from silence, as long as its state is carried from run to run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aioascend

pytestmark = pytest.mark.parametrize("model", ["SPEECH"], indirect=True)
SPEECH_FILE = Path(__file__).parents[2] / "examples" / "assets" / "speech.wav"
RATE = 16_000


@pytest.fixture
async def session(model, opened):
    async with opened(model) as session:
        yield session


@pytest.fixture
def quickstart(example):
    return example("quickstart")


async def test_sentences_are_speech_and_the_pauses_between_them_are_not(session, quickstart):
    heard = np.array(await quickstart.listen(session, quickstart.read(SPEECH_FILE)))
    times = np.arange(len(heard)) * 512 / RATE
    for start, end in ((0.0, 0.95), (4.9, 5.75), (7.8, 8.6)):
        assert heard[(times >= start) & (times < end)].max() < 0.1
    for start, end in ((1.1, 4.6), (5.9, 7.5)):
        assert heard[(times >= start) & (times < end)].mean() > 0.85


async def test_silence_is_no_speech(session, quickstart):
    assert max(await quickstart.listen(session, np.zeros(62 * 512, np.float32))) < 0.1


async def test_dropping_the_state_changes_the_answer(session, quickstart):
    samples = quickstart.read(SPEECH_FILE)
    carried = np.array(await quickstart.listen(session, samples))
    padded = np.concatenate([np.zeros(64, np.float32), samples])
    dropped = [
        (await session.infer({"input": padded[None, i : i + 576], "state": np.zeros((2, 1, 128), "f4"), "sr": RATE}))[0]
        for i in range(0, len(samples), 512)
    ]
    assert np.abs(carried - np.ravel(dropped)).max() > 0.5


async def test_the_sampling_rate_is_an_input_without_axes(session):
    sr = next(spec for spec in session.inputs if spec.name == "sr")
    assert (sr.dtype, sr.shape) == (np.dtype(np.int64), ())


@pytest.mark.parametrize(
    "change, named",
    [
        ({"state": None}, "state"),
        ({"sr": np.array([16_000, 16_000])}, "sr"),
        ({"input": np.zeros((1, 512), np.float32)}, "576"),
        ({"input": np.zeros((1, 576), np.complex64)}, "complex64"),
        ({"rate": np.array(16_000)}, "rate"),
    ],
)
async def test_an_input_that_does_not_fit_is_named_and_the_session_stays_usable(session, change, named):
    right = {"input": np.zeros((1, 576), "f4"), "state": np.zeros((2, 1, 128), "f4"), "sr": np.int64(RATE)}
    wrong = {name: value for name, value in {**right, **change}.items() if value is not None}
    with pytest.raises(aioascend.InvalidInput, match=named):
        await session.infer(wrong)
    assert (await session.infer(right))["output"].shape == (1, 1)


async def test_without_shapes_the_error_names_the_open_axes_and_the_argument(model, opened):
    with pytest.raises(aioascend.ModelLoadError, match=r"(?s)input.*state.*shapes="):
        await opened(model, shapes=None).open()
