"""Frames written straight into the memory that the device copies from.

`session.infer(x)` copies `x` once into pinned memory. `session.request()` hands that memory out
instead: the last step of the preprocessing writes there, and nothing is copied on the host. Here
a page turns like frames of a camera; the model says for each frame which way up it is, both ways.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
from _models import ORIENTATION, missing

import aioascend

try:
    from PIL import Image
except ImportError as error:
    raise missing(error) from None

SIDE = 224
# By channel (blue, green, red), brought to the range 0..255 of pixels.
MEANS = 255 * np.array([0.485, 0.456, 0.406], np.float32)
DEVIATIONS = 255 * np.array([0.229, 0.224, 0.225], np.float32)

Frame = np.ndarray
"""uint8 (SIDE, SIDE, 3)"""


def camera(count: int) -> list[Frame]:
    """`count` frames of a page, each turned a quarter further than the one before."""
    page = Image.open(Path(__file__).parent / "assets" / "page.png").convert("RGB")
    upright = page.resize((341, 256)).crop((58, 16, 58 + SIDE, 16 + SIDE))
    return [np.asarray(upright.rotate(-90 * (index % 4))) for index in range(count)]


def normalise(frame: Frame, out: np.ndarray) -> None:
    """Writes the model's input for `frame` to `out`, float32 (1, 3, SIDE, SIDE)."""
    channels_last = out[0].transpose(1, 2, 0)  # the same memory, seen the way the frame lies
    np.subtract(frame[..., ::-1], MEANS, out=channels_last)
    np.divide(channels_last, DEVIATIONS, out=channels_last)


async def by_infer(session: aioascend.Session, frame: Frame) -> int:
    x = np.empty((1, 3, SIDE, SIDE), np.float32)
    normalise(frame, out=x)
    outputs = await session.infer(x)
    return 90 * int(outputs[0].argmax())


async def by_request(session: aioascend.Session, frame: Frame) -> int:
    async with session.request() as request:
        normalise(frame, out=request.inputs["x"])
        outputs = await request.run()
    return 90 * int(outputs[0].argmax())


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=24)
    parser.add_argument("--device", default="auto", help="npu:0, emulator:0 ... (default: an NPU when there is one)")
    arguments = parser.parse_args()

    frames = camera(arguments.frames)
    session = aioascend.Session(ORIENTATION.find(), shapes=ORIENTATION.shapes, devices=arguments.device, warmup=1)
    ways: dict[str, Callable[[aioascend.Session, Frame], Awaitable[int]]] = {
        "infer(x)": by_infer,
        "request()": by_request,
    }
    async with session:
        for name, way in ways.items():
            start = time.perf_counter()
            turned = await asyncio.gather(*(way(session, frame) for frame in frames))
            took = (time.perf_counter() - start) / len(frames)
            print(f"{name:10} {took * 1e3:6.2f} ms a frame; turned by", *turned)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except aioascend.AioascendError as error:
        raise SystemExit(f"zero_copy.py: {error}") from None
