"""Reads the text of a picture with three models in a chain: which way up, where text is, what it says.

Meant for a page with one column of text. `--turn` turns the picture first, to see that the first
model finds out. The lines of the page are read all at once: `asyncio.gather` over `session.infer`.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import numpy as np
from _models import ORIENTATION, TEXT_LINE, TEXT_PLACES, Model, missing

import aioascend

try:
    import onnxruntime
    from PIL import Image
except ImportError as error:
    raise missing(error) from None

PAGE_SIDE = 640
LINE_HEIGHT, LINE_WIDTH = 48, 320
TEXT_FROM = 0.3
# The means and deviations of the pictures that the orientation model was trained on, by channel.
MEANS = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATIONS = np.array([0.229, 0.224, 0.225], np.float32)


def tensor(picture: Image.Image, means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """A picture as (1, 3, height, width) float32. The models were trained on blue, green, red."""
    values = np.asarray(picture.convert("RGB"), np.float32)[..., ::-1] / 255
    scaled: np.ndarray = (values - means) / deviations
    return scaled.transpose(2, 0, 1)[None]


async def orientation(session: aioascend.Session, page: Image.Image) -> tuple[int, float]:
    """By how many degrees (0, 90, 180, 270) the page is turned clockwise, and how sure the model is."""
    side, scale = 224, 256 / min(page.size)
    small = page.resize((round(page.width * scale), round(page.height * scale)), Image.Resampling.LANCZOS)
    left, top = (small.width - side) // 2, (small.height - side) // 2
    middle = small.crop((left, top, left + side, top + side))
    scores = (await session.infer(tensor(middle, MEANS, DEVIATIONS)))[0][0]
    best = int(scores.argmax())
    return 90 * best, float(scores[best])


async def text_lines(session: aioascend.Session, page: Image.Image) -> list[Image.Image]:
    """The pictures of the lines of text, from top to bottom."""
    scale = PAGE_SIDE / max(page.size)
    canvas = Image.new("RGB", (PAGE_SIDE, PAGE_SIDE), "white")
    canvas.paste(page.resize((round(page.width * scale), round(page.height * scale))))
    half = np.full(3, 0.5, np.float32)
    is_text = (await session.infer(tensor(canvas, half, half)))[0][0, 0] >= TEXT_FROM
    rows = np.flatnonzero(is_text.any(axis=1))
    lines = []
    for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else ():
        columns = np.flatnonzero(is_text[run[0] : run[-1] + 1].any(axis=0))
        margin = len(run) / 2  # the model marks the core of a line only
        box = (columns[0] - margin, run[0] - margin, columns[-1] + 1 + margin, run[-1] + 1 + margin)
        lines.append(page.crop(tuple(round(edge / scale) for edge in box)))
    return lines


async def read_line(session: aioascend.Session, line: Image.Image, characters: list[str]) -> tuple[str, float]:
    """The text of one line, and the mean probability of its characters."""
    width = min(LINE_WIDTH, round(LINE_HEIGHT * line.width / line.height))
    half = np.full(3, 0.5, np.float32)
    x = np.zeros((1, 3, LINE_HEIGHT, LINE_WIDTH), np.float32)
    x[..., :width] = tensor(line.resize((width, LINE_HEIGHT)), half, half)
    scores = (await session.infer(x))[0][0]
    best = scores.argmax(axis=1)
    # Each step across the line names a character or none (0); the same one in neighbouring steps is one character.
    kept = (best != 0) & (best != np.concatenate([[0], best[:-1]]))
    text = "".join(characters[index] for index in best[kept])
    return text, float(scores[kept].max(axis=1).mean()) if text else 0.0


def known_characters() -> list[str]:
    """The characters that the line model knows, in the order of its output; they are in the file's metadata."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = onnxruntime.InferenceSession(TEXT_LINE.find(), options, providers=["CPUExecutionProvider"])
    return ["", *model.get_modelmeta().custom_metadata_map["character"].split("\n"), " "]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", nargs="?", type=Path, default=Path(__file__).parent / "assets" / "page.png")
    parser.add_argument("--turn", type=int, choices=(0, 90, 180, 270), default=0, help="degrees clockwise (default 0)")
    parser.add_argument("--device", default="auto", help="npu:0, emulator:0 ... (default: an NPU when there is one)")
    arguments = parser.parse_args()

    page = Image.open(arguments.picture).convert("RGB").rotate(-arguments.turn, expand=True)

    def opened(model: Model) -> aioascend.Session:
        return aioascend.Session(model.find(), shapes=model.shapes, devices=arguments.device)

    async with opened(ORIENTATION) as turns, opened(TEXT_PLACES) as places, opened(TEXT_LINE) as reader:
        turned, sure = await orientation(turns, page)
        print(f"{arguments.picture.name} is turned by {turned} degrees ({sure:.2f})")
        lines = await text_lines(places, page.rotate(turned, expand=True))
        characters = await asyncio.to_thread(known_characters)
        for text, sure in await asyncio.gather(*(read_line(reader, line, characters) for line in lines)):
            print(f"{sure:.2f}  {text}")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (aioascend.AioascendError, OSError) as error:
        raise SystemExit(f"read_page.py: {error}") from None
