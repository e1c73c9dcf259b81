"""Three models in a chain whose results stay on the device between them.

`outputs="device"` leaves what a model gives where it was computed, and the next session takes it
from there: nothing is copied to the host and back. With `submit` the chain is handed over before
the first run is over, and the device keeps the order. The models here are the same tiny one three
times; what counts is that all three ways give the same numbers, bit for bit.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np
from _models import missing

import aioascend

try:
    from onnxruntime.datasets import get_example
except ImportError as error:
    raise missing(error) from None

Sessions = list[aioascend.Session]


async def through_the_host(sessions: Sessions, x: np.ndarray) -> np.ndarray:
    for session in sessions:
        x = (await session.infer(x))[0]
    return x


async def on_the_device(sessions: Sessions, x: np.ndarray) -> np.ndarray:
    first, second, third = sessions
    with await first.infer(x, outputs="device") as a, await second.infer(a, outputs="device") as b:
        return (await third.infer(b))[0]  # owned: a copy on the host


async def handed_on_at_once(sessions: Sessions, x: np.ndarray) -> np.ndarray:
    first, second, third = sessions
    a = await first.submit(x, outputs="device")
    b = await second.submit(a.tensors, outputs="device")
    return (await third.infer(b.tensors))[0]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--device", default="auto", help="npu:0, emulator:0 ... (default: an NPU when there is one)")
    parser.add_argument("--model", default=get_example("sigmoid.onnx"), help="of one input, and an output like it")
    arguments = parser.parse_args()

    sessions = [aioascend.Session(arguments.model, devices=arguments.device) for _ in range(3)]
    ways: dict[str, Callable[[Sessions, np.ndarray], Awaitable[np.ndarray]]] = {
        "through the host": through_the_host,
        "on the device": on_the_device,
        "handed on at once": handed_on_at_once,
    }
    async with sessions[0], sessions[1], sessions[2]:
        spec = sessions[0].inputs[0]
        x = np.random.default_rng(0).normal(size=spec.shape).astype(spec.dtype)
        wanted = await through_the_host(sessions, x)
        for name, way in ways.items():
            start = time.perf_counter()
            results = [await way(sessions, x) for _ in range(arguments.runs)]
            took = (time.perf_counter() - start) / arguments.runs
            same = all((result == wanted).all() for result in results)
            print(f"{name:18} {took * 1e3:6.2f} ms a chain; {'the same' if same else 'OTHER'} numbers")
        if sessions[0].device.startswith("emulator"):
            print("(An emulator copies in no time: what staying on the device saves, an NPU shows, or a profile.)")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except aioascend.AioascendError as error:
        raise SystemExit(f"device_chain.py: {error}") from None
