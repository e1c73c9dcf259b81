"""Three models, each made to take what the one before gives, with weights of their own."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from onnx import helper

import aioascend
from tests import kit

__all__ = ["SIZE", "chain", "host_chain", "inputs", "join", "middle", "source"]

SIZE = 24
Array = np.ndarray[Any, np.dtype[Any]]


def _weights(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"w": rng.normal(0, 0.3, (SIZE, SIZE)).astype(np.float32), "b": rng.normal(size=SIZE).astype(np.float32)}


def _layer(x: str, y: str) -> list[Any]:
    return [
        helper.make_node("MatMul", [x, "w"], [f"{y}_m"]),
        helper.make_node("Add", [f"{y}_m", "b"], [f"{y}_a"]),
        helper.make_node("Tanh", [f"{y}_a"], [y]),
    ]


def _tensor(name: str) -> Any:
    return kit.tensor(name, [2, SIZE])


@functools.cache
def source(name: str = "kit") -> bytes:
    """x -> hidden and a skip connection."""
    nodes = [*_layer("x", "hidden"), helper.make_node("Neg", ["x"], ["skip"])]
    return _named(kit.model(nodes, [_tensor("x")], [_tensor("hidden"), _tensor("skip")], _weights(1)), name)


@functools.cache
def middle(name: str = "kit") -> bytes:
    """hidden -> deeper."""
    return _named(kit.model(_layer("hidden", "deeper"), [_tensor("hidden")], [_tensor("deeper")], _weights(2)), name)


@functools.cache
def join(name: str = "kit") -> bytes:
    """deeper, skip and scale -> y."""
    nodes = [
        *_layer("deeper", "d"),
        helper.make_node("Mul", ["skip", "scale"], ["s"]),
        helper.make_node("Add", ["d", "s"], ["y"]),
    ]
    given = [_tensor("deeper"), _tensor("skip"), _tensor("scale")]
    return _named(kit.model(nodes, given, [_tensor("y")], _weights(3)), name)


def _named(model: bytes, name: str) -> bytes:
    import onnx

    proto = onnx.load_from_string(model)
    proto.graph.name = name
    return proto.SerializeToString()


def inputs(seed: int) -> tuple[Array, Array]:
    """A random x and scale."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(2, SIZE)).astype(np.float32), rng.normal(size=(2, SIZE)).astype(np.float32)


class chain:
    """Sessions on the three models, on one device."""

    def __init__(self, device: str = "emulator:0", **options: Any) -> None:
        self.sessions = [
            aioascend.Session(model(name), devices=device, **options)
            for model, name in ((source, "first"), (middle, "second"), (join, "third"))
        ]

    async def __aenter__(self) -> list[aioascend.Session]:
        for session in self.sessions:
            await session.open()
        return self.sessions

    async def __aexit__(self, *_: object) -> None:
        for session in self.sessions:
            await session.aclose()


async def host_chain(sessions: list[aioascend.Session], x: Array, scale: Array) -> Array:
    """Through the host, stage by stage."""
    a, b, c = sessions
    first = await a.infer(x)
    second = await b.infer(first["hidden"])
    return (await c.infer({"deeper": second["deeper"], "skip": first["skip"], "scale": scale}))["y"]
