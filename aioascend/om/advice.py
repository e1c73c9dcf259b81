"""What is worth looking at in a model before it is used: load time, gears, alignment, formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .file import OmFile
from .tensors import OmTensor

__all__ = ["Advice", "advice"]

# What a card's PCIe 3.0 x16 slot gives in practice, bytes a second.
_PCIE = 12e9
_HEAVY = 16 << 20
_CONVERSIONS = ("TransData", "Cast")


@dataclass(frozen=True)
class Advice:
    """One finding and what to do about it; `advice` is empty where there is nothing to do."""

    topic: str
    finding: str
    advice: str = ""


def advice(om: OmFile) -> tuple[Advice, ...]:
    """The findings on a model, one line each."""
    if om.encrypted:
        return (Advice("content", "the content is encrypted: only the header can be read", "inspect the plain file"),)
    return tuple(_findings(om))


def _findings(om: OmFile) -> Iterator[Advice]:
    if om.refusal:
        yield Advice("use", om.refusal)
    if om.definition is None:
        return
    if not om.phone:
        yield _chip(om)
        yield _load_time(om)
    yield _shapes(om)
    pictures = [tensor for tensor in om.inputs if tensor.aipp in ("static", "dynamic")]
    if pictures:
        yield _pictures(pictures)
    converting = _formats(om)
    if converting is not None:
        yield converting
    uneven = [tensor for tensor in (*om.inputs, *om.outputs) if tensor.nbytes % 64]
    if uneven:
        yield _alignment(uneven)


def _chip(om: OmFile) -> Advice:
    if om.soc_version:
        return Advice("chip", f"compiled for {om.soc_version}")
    return Advice(
        "chip",
        "the file does not say which chip it was compiled for",
        "that it is another than the device's shows only when it is loaded",
    )


def _load_time(om: OmFile) -> Advice:
    weights, share = om.weight_size, om.weights_share
    told = f"weights are {size_text(weights)}, {share:.0%} of the file"
    if weights < _HEAVY:
        return Advice("load time", f"{told}: too little to count when it is loaded")
    at_least = f"{told}: copying them takes {weights / _PCIE * 1e3:.0f} ms at 12 GB/s (PCIe 3.0 x16)"
    if share < 0.5:
        remedy = "fewer gears load faster" if om.gears is not None else "load it once, before requests come"
        return Advice("load time", at_least, f"most of the file is operators, kernels and tasks: {remedy}")
    return Advice(
        "load time",
        at_least,
        "load it once, before requests come, and keep it; only a smaller model (float16, int8) loads faster",
    )


def _shapes(om: OmFile) -> Advice:
    gears = om.gears
    if om.dynamic_shape:
        return Advice(
            "shapes",
            f"open shapes: planned at every run, {counted(len(om.models), 'model')} in the file",
            "where shapes do not vary, compile with --input_shape; where they are few, with gears",
        )
    if gears is None:
        return Advice("shapes", "static: one shape, the least to load and to keep")
    tasks = om.models[0].tasks
    told = f", {counted(tasks.task_count, 'task')} in all" if tasks is not None and tasks.task_count else ""
    return Advice(
        "shapes",
        f"{len(gears.values)} {gears.kind} gears: tasks and a memory plan for each{told}, buffers for the largest",
        "leave out gears that are not used; where the input never varies, a fixed --input_shape loads much faster",
    )


def _pictures(tensors: list[OmTensor]) -> Advice:
    told = ", ".join(f"{tensor.name} ({tensor.dtype} {tensor.format})" for tensor in tensors[:4])
    return Advice(
        "pre-processing",
        f"{tensors[0].aipp} AIPP prepares pictures inside the model: {told}",
        "give pictures as they are: what is scaled and normalised here must not be before",
    )


def _formats(om: OmFile) -> Advice | None:
    definition = om.definition
    assert definition is not None
    found = [(name, definition.op_types[name]) for name in _CONVERSIONS if definition.op_types.get(name)]
    if not found:
        return None
    told = " and ".join(f"{count} {name}" for name, count in found)
    finding = f"{told} of {definition.op_count} operators only convert layouts and types, at every run"
    wide = [tensor.name for tensor in om.inputs if tensor.dtype == "float32" and not tensor.aipp]
    if wide:
        names = ";".join(wide[:4]) + (";..." if len(wide) > 4 else "")
        saves = " and saves a Cast" if definition.op_types.get("Cast") else ""
        return Advice(
            "formats",
            finding,
            f'--input_fp16_nodes="{names}" halves the copies in{saves}; for pictures, AIPP takes uint8',
        )
    return Advice("formats", finding)


def _alignment(tensors: list[OmTensor]) -> Advice:
    told = ", ".join(f"{tensor.name} ({tensor.nbytes} bytes)" for tensor in tensors[:4])
    more = f" and {len(tensors) - 4} more" if len(tensors) > 4 else ""
    return Advice(
        "alignment",
        f"no multiple of 64 bytes: {told}{more}",
        "in one block, start each at a multiple of 64 and give it its size rounded up to 32, and 32 more",
    )


def counted(number: int, what: str) -> str:
    """A number of things: "1 model", "2 models"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def size_text(nbytes: int) -> str:
    """An amount of memory for people."""
    if nbytes < 10 << 10:
        return f"{nbytes} bytes"
    if nbytes < 1 << 20:
        return f"{nbytes / 1024:.1f} KiB"
    return f"{nbytes / 2**20:.1f} MiB" if nbytes < 1 << 30 else f"{nbytes / 2**30:.1f} GiB"
