"""A model as plain data, for JSON, and what differs between two of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from .advice import advice, counted, size_text
from .file import OmFile, OmModel
from .gears import Gears
from .tensors import OmTensor

__all__ = ["as_json", "compare", "shape_text", "summary"]

_SHOWN_GEARS = 32


def as_json(om: OmFile) -> dict[str, Any]:
    """Everything that was found, as objects that `json` writes. Sizes are bytes, shares are of the whole file."""
    described = {
        "bytes": om.size,
        "name": om.name,
        "kind": kind(om),
        "encrypted": om.encrypted,
        "dynamic_shape": om.dynamic_shape,
        "soc_version": om.soc_version or None,
        "atc_version": om.atc_version or None,
        "header": asdict(om.header),
        "table": "64-bit" if om.header.wide else "32-bit",
        "models": [_model(one, om.size) for one in om.models],
        "inputs": [tensor_json(one) for one in om.inputs],
        "outputs": [tensor_json(one) for one in om.outputs],
        "gears": None,
        "operators": None,
        "memory": _memory(om),
        "attributes": om.text_attributes(),
        "notes": list(om.notes),
        "advice": [asdict(one) for one in advice(om)],
    }
    if om.gears is not None:
        gears = om.gears
        outputs = [
            {"gear": gear, "output": output, "shape": list(shape)} for (gear, output), shape in gears.outputs.items()
        ]
        described["gears"] = {
            "kind": gears.kind,
            "values": [list(one) for one in gears.values],
            "order": list(gears.order),
            "outputs": outputs,
        }
    if om.definition is not None:
        described["operators"] = {"count": om.definition.op_count, "types": dict(om.definition.op_types)}
    if om.bundled:
        described["bundled"] = [as_json(one) for one in om.bundled]
    return described


def _memory(om: OmFile) -> dict[str, int | float | None]:
    """Null for what the file does not tell: of an encrypted file everything, of a bundle the models' work memory."""
    told = not om.encrypted
    return {
        "weights": om.weight_size if told else None,
        "weights_share": round(om.weights_share, 4) if told else None,
        "work": om.work_size if om.definition is not None else None,
    }


def _model(model: OmModel, size: int) -> dict[str, Any]:
    definition = model.definition
    described: dict[str, Any] = {
        "sections": [
            {
                "type": one.type,
                "name": one.name,
                "offset": one.offset,
                "bytes": one.size,
                "share": round(one.size / size, 4),
            }
            for one in model.sections
        ],
        "tasks": asdict(model.tasks) if model.tasks is not None else None,
    }
    if definition is not None:
        described |= {
            "name": definition.name,
            "ir_version": definition.ir_version,
            "custom_version": definition.custom_version,
            "graphs": list(definition.graph_names),
            "compressed_attributes": definition.compressed,
        }
    return described


def tensor_json(tensor: OmTensor) -> dict[str, Any]:
    """An input or output as JSON shows it."""
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "acl_dtype": tensor.acl_dtype,
        "format": tensor.format,
        "acl_format": tensor.acl_format,
        "shape": list(tensor.shape),
        "shape_v2": list(tensor.shape_v2),
        "bytes": tensor.nbytes,
        "padded": tensor.padded,
        "aipp": tensor.aipp or None,
    }


def kind(om: OmFile) -> str:
    """What the file is, in a few words."""
    if om.phone:
        return "HiAI model for Kirin phones"
    if om.header.bundle:
        return f"bundle of {counted(len(om.bundled), 'model')}" if om.bundled else "bundle"
    if om.header.kind != "executable":
        return f"{om.header.kind} model"
    if om.encrypted:
        return "encrypted model"
    if om.refusal:
        return "original graph, not compiled"
    if om.dynamic_shape:
        return f"dynamic-shape model of {counted(len(om.models), 'part')}"
    return f"model with {om.gears.kind} gears" if om.gears is not None else "static model"


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as the command line writes it."""
    return ",".join(map(str, shape)) if shape else "scalar"


def _tensor(tensor: OmTensor) -> str:
    return f"{tensor.name}: {tensor.dtype} {tensor.format} {shape_text(tensor.shape)}, {tensor.nbytes} bytes"


def summary(om: OmFile) -> dict[str, str]:
    """What a model is, by label: the lines in which two models can be compared. What cannot be read has no line."""
    attributes = om.text_attributes()
    gears = om.gears
    described = om.definition is not None
    lines = {"kind": kind(om), "name": om.name}
    if described:
        lines["chip"] = om.soc_version or "not told"
        lines["compiler"] = f"ATC {om.atc_version}" if om.atc_version else "not told"
        lines["framework"] = str(attributes.get("framework_type", "not told"))
    lines["file"] = _exact(om.size)
    if not om.encrypted:
        lines["weights"] = f"{_exact(om.weight_size)}, {om.weights_share:.1%} of the file"
    if described:
        lines["work memory"] = _exact(om.work_size) if not om.dynamic_shape else "chosen at every run"
        lines["streams"] = str(om.number("stream_num"))
        lines["events"] = str(om.number("event_num"))
    lines["header"] = (
        f"version {om.header.version:#x}, type {om.header.modeltype} ({om.header.kind}), IR version "
        f"{om.header.om_ir_version}, platform {om.header.platform_version}, {64 if om.header.wide else 32}-bit tables"
    )
    if gears is not None:
        lines["gears"] = _gears(gears, _SHOWN_GEARS)
    if "atc_cmdline" in attributes:
        lines["command line"] = str(attributes["atc_cmdline"])
    return lines


def _gears(gears: Gears, most: int | None) -> str:
    shown = " ".join(shape_text(one) for one in gears.values[:most])
    return (
        f"{len(gears.values)} {gears.kind}: {shown}{' ...' if len(gears.values) > (most or len(gears.values)) else ''}"
    )


def _exact(nbytes: int) -> str:
    text = size_text(nbytes)
    return text if text.endswith("bytes") else f"{text} ({nbytes} bytes)"


def _compared(om: OmFile) -> dict[str, str]:
    lines = summary(om)
    if om.gears is not None:
        lines["gears"] = _gears(om.gears, None)
    for side, tensors in (("input", om.inputs), ("output", om.outputs)):
        lines |= {f"{side} {index}": _tensor(tensor) for index, tensor in enumerate(tensors)}
    if om.definition is not None:
        lines["operators"] = str(om.definition.op_count)
        lines |= {f"operators {name}": str(count) for name, count in om.definition.op_types.items()}
    many = len(om.models) > 1
    for number, model in enumerate(om.models):
        seen: Counter[str] = Counter()
        for section in model.sections:
            seen[section.name] += 1
            again = f" {seen[section.name]}" if seen[section.name] > 1 else ""
            where = f" of model {number}" if many else ""
            lines[f"section {section.name}{again}{where}"] = f"{section.size} bytes"
    for number, inner in enumerate(om.bundled):
        lines |= {f"model {number}: {label}": value for label, value in _compared(inner).items()}
    return lines


def compare(one: OmFile, other: OmFile) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
    """(label, first's value, second's value) of what differs, and (label, value) of what does not.

    What only one of them has is "-" for the other.
    """
    ours, theirs = _compared(one), _compared(other)
    labels = [*ours, *(label for label in theirs if label not in ours)]
    different = [
        (label, ours.get(label, "-"), theirs.get(label, "-"))
        for label in labels
        if ours.get(label) != theirs.get(label)
    ]
    return different, [(label, ours[label]) for label in labels if label in ours and ours[label] == theirs.get(label)]
