"""What kind of file is it? Looks at the first and last bytes of every file given, many at once.

Without arguments it looks at a few files that are surely there. The files are read one after the
other while the device works on those before; `session.map` keeps the order and never takes in
more than the device can do.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
from _models import FILE_TYPE, file_features, file_labels

import aioascend

SURE_FROM = 0.5


async def features(paths: list[Path], taken: deque[Path]) -> AsyncIterator[np.ndarray]:
    """The model's input for each file that can be read; notes its path in `taken`."""
    for path in paths:
        try:
            content = await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            print(f"file_types.py: {error}", file=sys.stderr)
            continue
        if content:
            taken.append(path)
            yield file_features(content)
        else:
            print(f"{path}: empty")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--device", default="auto", help="npu:0, emulator:0 ... (default: an NPU when there is one)")
    parser.add_argument("--model", type=Path, help="the same model converted for the NPU (.om)")
    arguments = parser.parse_args()

    here, model = Path(__file__).parent, FILE_TYPE.find()
    some = [Path(__file__), here / "assets" / "page.png", here / "assets" / "speech.wav", Path(sys.executable), model]
    paths = arguments.files or some
    labels = file_labels()
    session = aioascend.Session(
        arguments.model or model,
        shapes=None if arguments.model else FILE_TYPE.shapes,
        devices=arguments.device,
    )
    taken: deque[Path] = deque()
    async with session:
        async for outputs in session.map(features(paths, taken)):
            scores = outputs[0][0]
            best = int(scores.argmax())
            doubt = "" if scores[best] >= SURE_FROM else "perhaps "
            print(f"{taken.popleft()}: {doubt}{labels[best]} ({scores[best]:.2f})")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except aioascend.AioascendError as error:
        raise SystemExit(f"file_types.py: {error}") from None
