"""Loading a model onto a device and unloading it; runs on the device's control thread."""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..driver import Driver
from ..driver.constants import DYNAMIC_TENSOR_NAME
from ..errors import AclError, InvalidInput, ModelLoadError, OutOfMemory
from .before_load import load_error, refuse_damaged, refuse_other_chip, suspicion
from .signature import Signature, read_signature
from .source import ModelSource

__all__ = ["LoadedModel", "ShapeOptions", "load_models"]


logger = logging.getLogger("aioascend.model")


class ShapeOptions:
    """How open axes of an `.onnx` are fixed at open, as ATC does with `--input_shape` for an `.om`.

    `shapes` gives the inputs' shapes; `examples` are input values for the run that finds output shapes which shape
    inference cannot tell; `output_shapes` states them. `dry_run` opens an `.om` on the emulator all the same, with
    outputs that are made up.
    """

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]] | None = None,
        examples: Mapping[str, Any] | None = None,
        output_shapes: Mapping[str, Sequence[int]] | None = None,
        dry_run: bool = False,
    ) -> None:
        self.shapes = _shapes("shapes", shapes)
        if not isinstance(examples or {}, Mapping):
            raise InvalidInput(f'examples: wanted {{"name": value}}, given {examples!r}')
        self.examples = dict(examples or {})
        self.output_shapes = _shapes("output_shapes", output_shapes)
        self.dry_run = bool(dry_run)

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
    if source.foreign and (options.dry_run or source.where.endswith(".om")):
        refuse_damaged(source)  # a bad offline model, which is told as one and not as a bad .onnx
    source = _checked(driver, source, options)
    loaded: list[LoadedModel] = []
    refused: ModelLoadError | None = None
    try:
        if not options:
            first = _load_as_it_is(driver, source)
            if isinstance(first, LoadedModel):
                loaded.append(first)
            else:
                refused = first
        if not loaded:
            source = _compile(driver, source, options, refused)
        while len(loaded) < instances:
            loaded.append(_load(driver, source))
    except BaseException:
        for model in reversed(loaded):
            _unload_quietly(driver, model.model_id)  # the first cause is what is told
        raise
    finally:
        del refused  # it has a traceback, and that has everything here
    return loaded


def _checked(driver: Driver, source: ModelSource, options: ShapeOptions) -> ModelSource:
    """Whether a model of this kind can be opened on the device; the source, made ready for a dry run if it is one."""
    if driver.backend.emulator is not None:
        return _checked_for_emulator(driver, source, options)
    if options.dry_run:
        raise InvalidInput(
            f"{source.name}: dry_run is for the emulator, {driver.device} computes: leave it out, or name "
            'devices="emulator:0"'
        )
    if not source.is_om:
        raise load_error(
            source,
            "it is no offline model (.om), which is what an NPU runs. Convert it on the machine: "
            f"atc --framework=5 --model={source.name} --output=model --soc_version={driver.soc_name() or '<SoC>'}",
        )
    if source.path is None and driver.on_board:
        raise load_error(
            source,
            f"{driver.device} is this machine's own board (run mode 0), where a model is loaded from a file: give its "
            "path",
        )
    _refuse_shapes(source, options)
    refuse_other_chip(source, driver.soc_name(), driver.device, emulated=False)
    return source


def _checked_for_emulator(driver: Driver, source: ModelSource, options: ShapeOptions) -> ModelSource:
    emulator = driver.backend.emulator
    assert emulator is not None
    if not source.is_om:
        if options.dry_run:
            raise InvalidInput(f"{source.name}: dry_run is for .om files; the emulator computes this one: leave it out")
        return source
    refuse_damaged(source)
    if not (options.dry_run or emulator.config.dry_run):
        raise load_error(
            source,
            f"it is compiled for an NPU and cannot run on {driver.device}: give the .onnx it was made from, or ask for "
            "a dry run, which computes nothing and makes the outputs up: Session(..., dry_run=True), --dry-run on the "
            "command line, AIOASCEND_EMULATOR_DRY_RUN=1",
        )
    _refuse_shapes(source, options)
    refuse_other_chip(source, driver.soc_name(), driver.device, emulated=True)
    if not options.dry_run:
        return source
    opened = emulator.dry_run(source.path if source.path is not None else bytes(source.data or b""))
    return replace(source, data=opened)


def _refuse_shapes(source: ModelSource, options: ShapeOptions) -> None:
    if options:
        raise InvalidInput(
            f"{source.name}: shapes, examples and output_shapes fix the axes of an .onnx; an .om was given, whose "
            "shapes were fixed by ATC (--input_shape). Leave them out."
        )


def _load_as_it_is(driver: Driver, source: ModelSource) -> LoadedModel | ModelLoadError | None:
    """The model if it has no open axes; None, or why not, where compiling may help and will say what is wrong."""
    can_compile = driver.backend.emulator is not None and not source.is_om
    try:
        model = _load(driver, source)
    except ModelLoadError as error:
        if can_compile:
            return error
        raise
    open_ones = [
        str(spec) for spec in model.signature.inputs + model.signature.outputs if min(spec.shape, default=0) < 0
    ]
    if not open_ones and DYNAMIC_TENSOR_NAME not in model.signature.input_index():
        return model
    model.unload()
    if can_compile:
        return None
    raise load_error(
        source,
        f"it was compiled with gears or open shapes ({', '.join(open_ones)}), which this version cannot serve: convert "
        "it with one fixed --input_shape",
    )


def _load(driver: Driver, source: ModelSource) -> LoadedModel:
    try:
        if source.data is None:
            model_id = driver.load_from_file(source.path or "")
        else:
            model_id = driver.load_from_bytes(source.data)
    except OutOfMemory:
        raise
    except AclError as error:
        why = suspicion(source, driver.soc_name()) if source.is_om else ""
        text = f"it could not be loaded on {driver.device}: {error}{why}"
        raise load_error(source, text, error.code, error.detail) from error
    try:
        signature = _signature(driver, model_id, source.name)
        if source.is_om and driver.backend.emulator is not None:
            signature = replace(signature, synthetic=True)
        return LoadedModel(driver, model_id, signature)
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


def _compile(driver: Driver, source: ModelSource, options: ShapeOptions, refused: ModelLoadError | None) -> ModelSource:
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
        if refused is not None and refused.code:
            text = f"{error} ({refused.code} {refused.name})"
            raise load_error(source, text, refused.code, refused.detail) from None
        raise load_error(source, str(error), error.code) from None
    return replace(source, data=compiled)
