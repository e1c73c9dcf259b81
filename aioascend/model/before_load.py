"""What an offline model's file tells before it is loaded, and beside what a driver says when it refuses it."""

from __future__ import annotations

from ..driver.codes import SOC_VERSION, describe
from ..errors import ModelLoadError
from ..om import OmError, OmFile, compare_chips, read
from .source import ModelSource

__all__ = ["load_error", "refuse_damaged", "refuse_other_chip", "suspicion"]


def load_error(source: ModelSource, text: str, code: int | None = None, detail: str = "") -> ModelLoadError:
    """The error of a model that could not be opened: its path, and a code with its name where there is one."""
    name = describe(code).name if code else ""
    return ModelLoadError(f"{source.where}: {text}", path=source.path, code=code or None, name=name, detail=detail)


def refuse_damaged(source: ModelSource) -> None:
    """Raise `ModelLoadError` if the file is damaged, cut short or none that a device loads."""
    try:
        file = _read(source)
    except OmError as error:
        raise load_error(source, f"{error} ({error.code} {describe(error.code).name})", error.code) from None
    if file.refusal:
        raise load_error(source, file.refusal)


def refuse_other_chip(source: ModelSource, chip: str, device: str, emulated: bool) -> None:
    """Raise `ModelLoadError` if the model was compiled for a chip of another architecture than the device's.

    Takes a millisecond. Where anything is unsure (names of one family, a name that is not known, a file that cannot be
    read) nothing happens: the driver knows better.
    """
    try:
        file = read(_model(source), graphs=False)
    except OmError:
        return
    if compare_chips(file.soc_version, chip) != "different":
        return
    remedy = (
        f"set AIOASCEND_EMULATOR_SOC={file.soc_version}"
        if emulated
        else f"convert it again with atc --soc_version={chip}, or run it on a device with {file.soc_version}"
    )
    raise load_error(
        source,
        f"it was compiled for {file.soc_version}, but {device} is {chip}, a chip of another architecture "
        f"({SOC_VERSION} {describe(SOC_VERSION).name}): {remedy}",
        SOC_VERSION,
    )


def suspicion(source: ModelSource, chip: str) -> str:
    """What may be why a driver refused the model, as a sentence to append; empty if nothing stands out."""
    try:
        file = _read(source)
    except OmError as error:
        return f". The file itself: {error}"
    if file.refusal:
        return f". The file itself: {file.refusal}"
    told = file.soc_version
    if told and chip and compare_chips(told, chip) != "same":
        return (
            f". It was compiled for {told}, and the device is {chip}: if that is the reason, convert it with "
            f"atc --soc_version={chip}"
        )
    return ""


def _read(source: ModelSource) -> OmFile:
    return read(_model(source))


def _model(source: ModelSource) -> str | bytes | bytearray | memoryview:
    return source.path if source.path is not None else source.data or b""
