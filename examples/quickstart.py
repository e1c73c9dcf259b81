"""Where is someone speaking? A speech detector over a WAV file, one awaited chunk after another.

The model remembers: each run takes the state that the run before gave back. Prints a line for
each 1.6 s of sound ('#' where the model hears speech), then each stretch of speech.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import wave
from pathlib import Path

import numpy as np
from _models import SPEECH

import aioascend

RATE = 16_000
CHUNK = 512  # 32 ms
CONTEXT = 64  # the model also wants the end of the chunk before
SPEECH_FROM = 0.5


def read(path: Path) -> np.ndarray:
    """The samples of a 16 kHz mono 16-bit WAV file as float32 in -1..1, padded to whole chunks."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            raise wave.Error(f"{path} is not 16 kHz mono 16-bit (sox IN -r 16000 -c 1 -b 16 OUT makes it so)")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    return np.pad(samples, (0, -len(samples) % CHUNK))


async def listen(session: aioascend.Session, samples: np.ndarray) -> list[float]:
    """The probability of speech in each chunk."""
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), samples])
    state = np.zeros((2, 1, 128), np.float32)
    heard = []
    for start in range(0, len(samples), CHUNK):
        window = padded[None, start : start + CONTEXT + CHUNK]
        outputs = await session.infer({"input": window, "state": state, "sr": np.int64(RATE)})
        state = outputs["stateN"]
        heard.append(float(outputs["output"][0, 0]))
    return heard


def report(heard: list[float]) -> None:
    """The timeline and the stretches of speech."""
    seconds = CHUNK / RATE
    marks = "".join("#" if probability >= SPEECH_FROM else "." for probability in heard)
    row = 50  # 1.6 s
    for start in range(0, len(marks), row):
        print(f"{start * seconds:6.2f} s  {marks[start : start + row]}")
    start = marks.find("#")
    while start >= 0:
        end = start
        while "#" in marks[end : end + 10]:  # a gap of less than 0.3 s is part of the sentence
            end = marks.index("#", end) + 1
        mean = np.mean(heard[start:end])
        print(f"speech from {start * seconds:.2f} s to {end * seconds:.2f} s, mean probability {mean:.2f}")
        start = marks.find("#", end)
    if "#" not in marks:
        print("no speech")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=Path(__file__).parent / "assets" / "speech.wav")
    parser.add_argument("--device", default="auto", help="npu:0, emulator:0 ... (default: an NPU when there is one)")
    parser.add_argument("--model", type=Path, help="the same model converted for the NPU (.om)")
    arguments = parser.parse_args()

    samples = read(arguments.file)
    session = aioascend.Session(
        arguments.model or SPEECH.find(),
        shapes=None if arguments.model else SPEECH.shapes,
        examples=None if arguments.model else SPEECH.examples,
        devices=arguments.device,
    )
    async with session:
        print(session)
        start = time.perf_counter()
        heard = await listen(session, samples)
        took = time.perf_counter() - start
    report(heard)
    print(f"{len(samples) / RATE:.1f} s of sound, {len(heard)} runs, {took / len(heard) * 1e3:.2f} ms each")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (aioascend.AioascendError, OSError, EOFError, wave.Error) as error:
        raise SystemExit(f"quickstart.py: {error}") from None
