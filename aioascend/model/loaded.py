"""Loading a model onto a device and unloading it; runs on the device's control thread."""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from ..driver import Driver
from ..driver.constants import DYNAMIC_TENSOR_NAME
from ..errors import AclError, InvalidInput, ModelLoadError, OutOfMemory
from .signature import Signature, read_signature
from .source import ModelSource

__all__ = ["LoadedModel", "ShapeOptions", "load_models"]


logger = logging.getLogger("aioascend.model")


class ShapeOptions:
    """How open axes of an `.onnx` are fixed at open, as ATC does with `--input_shape` for an `.om`.

    `shapes` gives the inputs' shapes; `examples` are input values for the run that finds output shapes which shape
    inference cannot tell; `output_shapes` states them.
    """

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]] | None = None,
        examples: Mapping[str, Any] | None = None,
        output_shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.shapes = _shapes("shapes", shapes)
        if not isinstance(examples or {}, Mapping):
            raise InvalidInput(f'examples: wanted {{"name": value}}, given {examples!r}')
        self.examples = dict(examples or {})
        self.output_shapes = _shapes("output_shapes", output_shapes)

    def __bool__(self) -> bool:
        return bool(self.shapes or self.examples or self.output_shapes)


def _shapes(argument: str, given: Mapping[str, Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
    shapes = {}
    try:
        for name, shape in dict(given or {}).items():
            if not isinstance(name, str) or isinstance(shape, (str, bytes)) or any(isinstance(n, bool) for n in shape):
                raise TypeError
            shapes[name] = tuple(operator.index(size) for size in shape)
    except (TypeError, ValueError):
        raise InvalidInput(f'{argument}: wanted {{"name": (1, 3, 224, 224)}}, given {given!r}') from None
    for name, sizes in shapes.items():
        if math.prod(max(1, abs(size)) for size in sizes) >= 1 << 47:
            raise InvalidInput(f"{argument}: {name!r} of shape {sizes} is larger than any memory")
    return shapes


class LoadedModel:
    """One loaded instance of a model: its id and its signature."""

    def __init__(self, driver: Driver, model_id: int, signature: Signature) -> None:
        self._driver = driver
        self.model_id = model_id
        self.signature = signature

    def unload(self) -> None:
        """Unload it, in the context it was loaded in; nothing may be using it any more."""
        self._driver.unload(self.model_id)


def load_models(driver: Driver, source: ModelSource, options: ShapeOptions, instances: int) -> list[LoadedModel]:
    """Load `instances` copies of a model, each of which can run on a stream of its own (pyACL reference §11).

    Blocks; for the control thread. On the emulator the open axes of an `.onnx` are fixed first. Raises
    `ModelLoadError`, `InvalidInput` for options that do not apply, and `OutOfMemory`; then nothing stays loaded.
    """
    _check_kind(driver, source, options)
    loaded: list[LoadedModel] = []
    try:
        if not options:
            first = _load_as_it_is(driver, source)
            if first is not None:
                loaded.append(first)
        if not loaded:
            source = _compile(driver, source, options)
        while len(loaded) < instances:
            loaded.append(_load(driver, source))
    except BaseException:
        for model in reversed(loaded):
            _unload_quietly(driver, model.model_id)  # the first cause is what is told
        raise
    return loaded


def _check_kind(driver: Driver, source: ModelSource, options: ShapeOptions) -> None:
    if driver.backend.emulator is not None:
        if source.is_om:
            raise ModelLoadError(
                f"{source.name} is compiled for an NPU and cannot run on {driver.device}: "
                "give the .onnx it was made from"
            )
        return
    if not source.is_om:
        raise ModelLoadError(
            f"{source.name} is no offline model (.om), which is what an NPU runs. Convert it on the machine: "
            f"atc --framework=5 --model={source.name} --output=model --soc_version={driver.soc_name() or '<SoC>'}"
        )
    if source.path is None and driver.on_board:
        raise ModelLoadError(
            f"{source.name}: {driver.device} is this machine's own board (run mode 0), where a model is loaded from a "
            "file: give its path"
        )
    if options:
        raise InvalidInput(
            f"{source.name}: shapes, examples and output_shapes fix the axes of an .onnx; an .om was given, whose "
            "shapes were fixed by ATC (--input_shape). Leave them out."
        )


def _load_as_it_is(driver: Driver, source: ModelSource) -> LoadedModel | None:
    """The model if it has no open axes; None where compiling may help, and will say what is wrong (emulator)."""
    can_compile = driver.backend.emulator is not None
    try:
        model = _load(driver, source)
    except ModelLoadError:
        if can_compile:
            return None
        raise
    open_ones = [
        str(spec) for spec in model.signature.inputs + model.signature.outputs if min(spec.shape, default=0) < 0
    ]
    if not open_ones and DYNAMIC_TENSOR_NAME not in model.signature.input_index():
        return model
    model.unload()
    if can_compile:
        return None
    raise ModelLoadError(
        f"{source.name} was compiled with gears or open shapes ({', '.join(open_ones)}), which this version cannot "
        "serve: convert it with one fixed --input_shape"
    )


def _load(driver: Driver, source: ModelSource) -> LoadedModel:
    try:
        if source.path is not None:
            model_id = driver.load_from_file(source.path)
        else:
            model_id = driver.load_from_bytes(source.data or b"")
    except OutOfMemory:
        raise
    except AclError as error:
        raise ModelLoadError(f"{source.name} could not be loaded on {driver.device}: {error}") from error
    try:
        return LoadedModel(driver, model_id, _signature(driver, model_id, source.name))
    except BaseException:
        _unload_quietly(driver, model_id)
        raise


def _unload_quietly(driver: Driver, model_id: int) -> None:
    try:
        driver.unload(model_id)
    except AclError as error:
        logger.warning("while giving up: %s", error)


def _signature(driver: Driver, model_id: int, name: str) -> Signature:
    desc = driver.create_desc(model_id)
    try:
        return read_signature(driver, desc, name)
    finally:
        try:
            driver.destroy_desc(desc)
        except AclError as error:
            logger.warning("%s", error)


def _compile(driver: Driver, source: ModelSource, options: ShapeOptions) -> ModelSource:
    from ..emulator import CompileError

    emulator = driver.backend.emulator
    assert emulator is not None
    try:
        compiled = emulator.compile(
            source.path if source.path is not None else bytes(source.data or b""),
            shapes=options.shapes,
            examples=options.examples,
            output_shapes=options.output_shapes,
        )
    except CompileError as error:
        raise ModelLoadError(f"{source.name}: {error}") from None
    return ModelSource(source.name, None, compiled, is_om=False)
