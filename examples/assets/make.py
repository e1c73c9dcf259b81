"""Make the two asset files again: ``speech.wav`` and ``page.png``.

    apt-get install espeak-ng
    pip install "Pillow>=10.1"
    python examples/assets/make.py [DIRECTORY]

The voice is espeak-ng's, the letters are the font that ships inside Pillow, the
words are the project's own.
"""

from __future__ import annotations

import io
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

RATE = 16_000
SPEECH = (  # (seconds of pause before it, sentence)
    (1.0, "The device computes while the next request is copied in."),
    (1.2, "Nobody waits for nothing."),
)
LAST_PAUSE = 1.0
LINES = ("ASYNC INFERENCE", "Hello NPU 310P", "three streams, one await", "Order 2024-17 total 86.50")


def speak(sentence: str) -> np.ndarray:
    """The sentence as float32 samples in -1..1 at 16 kHz, leading and trailing quiet cut."""
    said = subprocess.run(
        ["espeak-ng", "-v", "en-us", "-s", "150", "--stdout", sentence],
        check=True,
        capture_output=True,
    ).stdout
    with wave.open(io.BytesIO(said)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768.0
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    samples = samples[loud[0] : loud[-1] + 1]
    times = np.arange(0, len(samples) / rate, 1 / RATE)
    return np.interp(times, np.arange(len(samples)) / rate, samples).astype(np.float32)


def make_speech(path: Path) -> None:
    """16 kHz mono 16-bit WAV: pause, sentence, pause, sentence, pause, over a faint room noise."""
    parts: list[np.ndarray] = []
    for pause, sentence in SPEECH:
        parts += [np.zeros(int(pause * RATE), np.float32), 0.6 * speak(sentence)]
    parts.append(np.zeros(int(LAST_PAUSE * RATE), np.float32))
    samples = np.concatenate(parts)
    samples += np.random.default_rng(7).normal(0, 4e-4, samples.shape).astype(np.float32)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 32767).astype("<i2").tobytes())


def make_page(path: Path) -> None:
    """640x480 grey-scale PNG with four lines of text, the right way up."""
    page = Image.new("L", (640, 480), 246)
    draw = ImageDraw.Draw(page)
    for row, line in enumerate(LINES):
        draw.text((48, 52 + 104 * row), line, fill=28, font=ImageFont.load_default(size=44))
    page.save(path, optimize=True)


if __name__ == "__main__":
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    make_speech(directory / "speech.wav")
    make_page(directory / "page.png")
