"""The real models, and what onnxruntime alone answers for them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import aioascend

EXAMPLES = Path(__file__).parents[2] / "examples"

Reference = Callable[..., dict[str, np.ndarray]]


@pytest.fixture(scope="session")
def example() -> Callable[[str], ModuleType]:
    """Imports a file of examples/ as a module; it finds `_models` as it does when it is run as a script."""

    def load(name: str) -> ModuleType:
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            try:
                spec.loader.exec_module(module)
            except BaseException as error:
                del sys.modules[name]
                if isinstance(error, SystemExit):  # a package of the example is missing, and the message names it
                    pytest.skip(str(error))
                raise
        return sys.modules[name]

    load("_models")
    return load


@pytest.fixture
def model(request: pytest.FixtureRequest, example: Callable[[str], ModuleType]) -> Any:
    """The `_models.Model` named by the parameter; skips when its wheel is not installed."""
    found = getattr(example("_models"), request.param)
    try:
        found.find()
    except SystemExit as error:
        pytest.skip(str(error))
    return found


@pytest.fixture
def opened() -> Callable[..., aioascend.Session]:
    """`opened(model)` is a session of the model on the emulator; keyword arguments win over the model's own."""

    def opened(model: Any, **options: Any) -> aioascend.Session:
        own = {"shapes": model.shapes, "examples": model.examples, "devices": "emulator:0"}
        return aioascend.Session(model.find(), **{**own, **options})

    return opened


@pytest.fixture(scope="session")
def reference() -> Callable[..., Reference]:
    """`reference(path, shapes)` gives `run(**inputs) -> {output: array}` of onnxruntime with the emulator's options.

    The dynamic axes are fixed by the `onnx` package, on the reference's own way and not on the emulator's. A graph
    that onnxruntime refuses with fixed axes runs with open ones: the branch for 8 kHz of the speech model makes no
    sense for the shapes of the one for 16 kHz.
    """
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from aioascend import emulator

    def session(path: Path, shapes: dict[str, tuple[int, ...]]) -> Reference:
        proto = onnx.load(path)
        for value in proto.graph.input:
            for axis, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
                axis.dim_value = size
        options = emulator.session_options(emulator.Config.from_env())
        try:
            alone = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            alone = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in alone.get_outputs()]

        def run(**inputs: np.ndarray) -> dict[str, np.ndarray]:
            return dict(zip(names, alone.run(names, inputs), strict=True))

        return run

    return session
