"""Models, time profiles and devices that the measures run on."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter as now
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import aioascend
from aioascend.driver import Backend
from aioascend.emulator import Emulator, Profile
from aioascend.memory.layout import plan
from aioascend.testing import emulated
from aioascend.testing.backends import installed

from .null_acl import MODEL, null_backend

__all__ = [
    "be_strict", "convolutions", "device", "head", "mlp", "null_session", "pinned_to", "run_all", "saved", "staged",
    "zeros",
]  # fmt: skip

FLOAT = TensorProto.FLOAT


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, np.ndarray]) -> bytes:
    graph = helper.make_graph(
        nodes, "bench", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in weights.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _info(name: str, shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, shape)


def head(inputs: int = 40, outputs: int = 16) -> bytes:
    """y = the first `outputs` of `inputs` floats: a run that costs the CPU next to nothing."""
    bounds = {name: np.array([value], np.int64) for name, value in (("from", 0), ("to", outputs), ("axis", 0))}
    node = helper.make_node("Slice", ["x", "from", "to", "axis"], ["y"])
    return _model([node], [_info("x", (inputs,))], [_info("y", (outputs,))], bounds)


def mlp() -> bytes:
    """16-256-256-256-10, ReLU between: 8 to 20 microseconds of compute."""
    dice = np.random.default_rng(0)
    sizes = (16, 256, 256, 256, 10)
    nodes, weights, last = [], {}, "x"
    for index, (rows, columns) in enumerate(pairwise(sizes)):
        weights[f"w{index}"] = dice.standard_normal((rows, columns), dtype=np.float32) / 16
        name = "y" if index == len(sizes) - 2 else f"h{index}"
        nodes.append(helper.make_node("MatMul", [last, f"w{index}"], [name if name == "y" else f"m{index}"]))
        if name != "y":
            nodes.append(helper.make_node("Relu", [f"m{index}"], [name]))
        last = name
    return _model(nodes, [_info("x", (1, 16))], [_info("y", (1, 10))], weights)


def convolutions(count: int, channels: int, size: int) -> bytes:
    """`count` 3x3 convolutions of an image of `size` x `size`."""
    dice = np.random.default_rng(0)
    nodes, weights, last = [], {}, "x"
    for index in range(count):
        before = 3 if index == 0 else channels
        weights[f"w{index}"] = dice.standard_normal((channels, before, 3, 3), dtype=np.float32) / 16
        name = "y" if index == count - 1 else f"c{index}"
        nodes.append(
            helper.make_node(
                "Conv", [last, f"w{index}"], [name], pads=[1, 1, 1, 1], strides=[2, 2] if index == 0 else [1, 1]
            )
        )
        last = name
    half = (size + 1) // 2
    return _model(nodes, [_info("x", (1, 3, size, size))], [_info("y", (1, channels, half, half))], weights)


def saved(content: bytes) -> str:
    """The path of a file with this content."""
    path = Path(mkdtemp(prefix="aioascend-bench-")) / "model.onnx"
    path.write_bytes(content)
    return str(path)


def staged(h2d_ms: float, compute_ms: float, d2h_ms: float, *, inputs: int = 40, outputs: int = 16) -> Profile:
    """A device on which copying in, computing and copying out of `head(inputs, outputs)` take these milliseconds."""
    given, taken = plan([4 * inputs]).nbytes, plan([4 * outputs]).nbytes
    seconds = (h2d_ms - d2h_ms) / 1e3 / (given - taken)  # a byte
    latency = d2h_ms / 1e3 - taken * seconds
    if latency < -1e-9 or seconds < 0:
        raise ValueError("no bandwidth and latency give these times for these sizes")
    return Profile(
        name=f"{h2d_ms:g}/{compute_ms:g}/{d2h_ms:g} ms",
        pinned=1 / seconds if seconds else 0.0,
        copy_latency=max(0.0, latency),
        compute_default=compute_ms / 1e3,
    )


_strict = False


def be_strict() -> None:
    """From now on devices refuse and note whatever hardware forbids, races included; no figure is worth anything."""
    global _strict
    _strict = True


@contextlib.contextmanager
def device(profile: Profile | None = None, *, devices: int = 1, **settings: Any) -> Iterator[Emulator]:
    """The emulator of this process, with this time profile; what broke a rule of hardware is not worth a figure."""
    with emulated(check=False, strict=_strict, profile=profile, devices=devices, **settings) as emulator:
        yield emulator
        broken = [str(violation) for violation in emulator.report().violations]
        if broken:
            raise RuntimeError(f"what was measured does what hardware forbids: {'; '.join(broken)}")


@contextlib.contextmanager
def null_session(hold: Callable[[Backend], None] | None = None, **options: Any) -> Iterator[aioascend.Session]:
    """A session on the module whose calls cost nothing; not open yet. `hold` may change the module."""
    backend = null_backend()
    if hold is not None:
        hold(backend)
    with installed(backend):
        yield aioascend.Session(MODEL, devices="npu:0", **options)


def zeros(session: aioascend.Session) -> np.ndarray:
    """The input of a session's model."""
    [spec] = session.inputs
    return np.zeros(spec.shape, spec.dtype)


async def run_all(call: Callable[[], Awaitable[object]], count: int, callers: int = 16) -> float:
    """Seconds that `count` calls take from the first to the end of the last."""
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await call()

    start = now()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return now() - start


def pinned_to(cpus: list[int]) -> None:
    """Let this process run on these CPUs only."""
    if cpus:
        os.sched_setaffinity(0, cpus)
