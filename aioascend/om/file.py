"""An offline model as a whole: what `read` finds in it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from .attributes import Value
from .definition import Definition, read_definition
from .errors import OmError
from .gears import Gears
from .header import HEADER_SIZE, Header, read_header
from .inout import compare, read_records
from .pieces import Budget, Pieces, opened
from .sections import BUNDLE_MODEL_INFO, MODEL_DEF, MODEL_INOUT_INFO, TASK_INFO, WEIGHTS_DATA, Section, read_tables
from .tensors import OmTensor
from .wire import BYTES, VARINT, Message

__all__ = ["OmFile", "OmModel", "Tasks", "read"]

# Protobuf's own limit, so that nothing larger has to be read to know that it is none.
_LARGEST_MESSAGE = (1 << 31) - 1


@dataclass(frozen=True)
class Tasks:
    """What TASK_INFO says: sizes in bytes, and how many tasks a run consists of."""

    memory_size: int = 0
    stream_num: int = 0
    event_num: int = 0
    weight_size: int = 0
    task_count: int = 0


@dataclass(frozen=True)
class OmModel:
    """One model of a file. `definition` is None where it cannot be read (encrypted) or is not there."""

    sections: tuple[Section, ...]
    definition: Definition | None
    tasks: Tasks | None


@dataclass(frozen=True)
class OmFile:
    """An offline model, taken apart without a device; nothing of its weights was read.

    `size` is that of the file in bytes. A file of several models has a root, whose inputs and outputs are the file's,
    and one more for each part of known shape. `bundled` are the whole offline models inside a bundle. `notes` says
    where the file contradicts itself without being unreadable.
    """

    size: int
    header: Header
    models: tuple[OmModel, ...]
    bundled: tuple[OmFile, ...]
    notes: tuple[str, ...]

    @property
    def encrypted(self) -> bool:
        """Whether the content is encrypted: then only the header is known."""
        return self.header.is_encrypt != 0

    @property
    def phone(self) -> bool:
        """Whether it is a HiAI model for Kirin phones, which no Ascend device runs."""
        return self.header.phone or self._text("target_type") == "LITE"

    @property
    def dynamic_shape(self) -> bool:
        """Whether every run says its shapes. A model with gears is static by this test."""
        return self.header.dynamic_shape

    @property
    def definition(self) -> Definition | None:
        """The definition of the (root) model."""
        return self.models[0].definition if self.models else None

    @property
    def name(self) -> str:
        """The model's own name."""
        return (self.definition.name if self.definition is not None else "") or self.header.name

    @property
    def inputs(self) -> tuple[OmTensor, ...]:
        """The inputs in the order of `acl.mdl`, those that choose gears or set AIPP included."""
        return self.definition.inputs if self.definition is not None else ()

    @property
    def outputs(self) -> tuple[OmTensor, ...]:
        """The outputs in the order of `acl.mdl`."""
        return self.definition.outputs if self.definition is not None else ()

    @property
    def gears(self) -> Gears | None:
        """The batches, picture sizes or shapes it was compiled for; None for one shape."""
        return self.definition.gears if self.definition is not None else None

    @property
    def soc_version(self) -> str:
        """The chip it was compiled for, as ``Ascend310P3``; empty where the file does not say (before 2021)."""
        told = self._text("soc_version")
        if re.fullmatch(r"[\w.-]{1,64}", told):
            return told
        found = re.search(r"--soc_version[=\s]+\"?([A-Za-z0-9_]{1,64})", self._text("atc_cmdline"))
        return found[1] if found else ""

    @property
    def atc_version(self) -> str:
        """The version of the compiler; empty where the file does not say."""
        return self._text("atc_version")

    @property
    def weight_size(self) -> int:
        """Device memory for the weights in bytes, as `acl.mdl.query_size` tells it; of a bundle, for all its models."""
        return sum(one.weight_size for one in self.bundled) + sum(
            one.size for model in self.models for one in model.sections if one.type == WEIGHTS_DATA
        )

    @property
    def work_size(self) -> int:
        """Device memory for a run in bytes, as `acl.mdl.query_size` tells it; 0 for a dynamic-shape model."""
        tasks = self.models[0].tasks if self.models else None
        if self.dynamic_shape:
            return 0
        if tasks is not None and tasks.memory_size:
            return tasks.memory_size
        return self.number("memory_size")

    @property
    def weights_share(self) -> float:
        """The weights' part of the file, 0 to 1."""
        return self.weight_size / self.size

    @property
    def refusal(self) -> str:
        """Why no Ascend device loads it by `acl.mdl.load_from_file`; empty if nothing speaks against it."""
        if self.phone:
            return "it is a HiAI model for Kirin phones, which no Ascend device runs"
        if self.header.bundle:
            return "it is a bundle of whole models, for acl.mdl.bundle_load_from_file"
        if self.header.modeltype == 3:
            return "it is a flow model, which acl.mdl does not load"
        if self.encrypted:
            return ""
        if not self.dynamic_shape and len(self.models[0].sections) == 1:
            return "it is an original graph, which was not compiled: it has no tasks"
        return ""

    def text_attributes(self) -> dict[str, Value]:
        """The model's attributes under their names in the file (om-format §7)."""
        return dict(self.definition.attributes) if self.definition is not None else {}

    def number(self, name: str) -> int:
        """A numeric attribute of the model, 0 where it is absent."""
        value = self._attribute(name)
        return value if isinstance(value, int) else 0

    def _attribute(self, name: str) -> Value | None:
        return self.definition.attributes.get(name) if self.definition is not None else None

    def _text(self, name: str) -> str:
        value = self._attribute(name)
        return value if isinstance(value, str) else ""


def read(model: str | os.PathLike[str] | bytes | bytearray | memoryview, *, graphs: bool = True) -> OmFile:
    """Take an offline model apart: a path, or its bytes.

    Without `graphs` only the header, the sections and the model's attributes are read, which takes a millisecond
    whatever the model's size: there are no inputs, outputs, gears and operators then.

    Raises `OmError` for a file that cannot be read, is no offline model, or is damaged or cut short. The time is in
    proportion to the file's size without its weights, the memory at most twice the file's size and a MiB.
    """
    with opened(model) as pieces:
        return _read(pieces, Budget(pieces.size), graphs)


def _read(pieces: Pieces, budget: Budget, graphs: bool, inside: bool = False) -> OmFile:
    header = read_header(pieces.read(0, min(pieces.size, HEADER_SIZE)), pieces.size, pieces.start)
    notes: list[str] = []
    if header.is_encrypt:
        return OmFile(pieces.size, header, _encrypted(pieces, header, budget), (), ())
    tables = read_tables(pieces, header, budget, notes)
    if header.bundle:
        if inside:
            raise OmError("damaged: a bundle inside a bundle", pieces.start)
        bundled = []
        for section in tables[0]:
            if section.type == BUNDLE_MODEL_INFO:
                budget.take(3000, section.offset)
                bundled.append(_read(pieces.within(section.offset, section.size), budget, graphs, inside=True))
        return OmFile(pieces.size, header, (OmModel(tables[0], None, None),), tuple(bundled), tuple(notes))
    models = tuple(
        _model(pieces, header, sections, budget, graphs, notes if index == 0 else [])
        for index, sections in enumerate(tables)
    )
    return OmFile(pieces.size, header, models, (), tuple(notes))


def _encrypted(pieces: Pieces, header: Header, budget: Budget) -> tuple[OmModel, ...]:
    """The sections of an encrypted file, where its table can be read."""
    try:
        return tuple(OmModel(sections, None, None) for sections in read_tables(pieces, header, budget, []))
    except OmError:
        return ()


def _model(
    pieces: Pieces, header: Header, sections: tuple[Section, ...], budget: Budget, graphs: bool, notes: list[str]
) -> OmModel:
    definition: Definition | None = None
    tasks: Tasks | None = None
    records = None
    for section in sections:
        if section.type == MODEL_DEF and definition is None:
            definition = read_definition(_message(pieces, section, budget), header.dynamic_shape, graphs, notes)
        elif not graphs:
            continue
        elif section.type == TASK_INFO and tasks is None and not header.phone:
            tasks = _tasks(_message(pieces, section, budget))
        elif section.type == MODEL_INOUT_INFO and records is None and not header.phone:
            data = pieces.read(section.offset - pieces.start, section.size)
            records = read_records(data, section.offset, budget)
    if definition is None and MODEL_DEF not in [section.type for section in sections]:
        where = sections[0].offset
        raise OmError("damaged: there is no MODEL_DEF among the sections", where)
    if definition is not None and records is not None:
        compare("input", records[0], definition.inputs, notes)
        compare("output", records[1], definition.outputs, notes)
    return OmModel(sections, definition, tasks)


def _message(pieces: Pieces, section: Section, budget: Budget) -> Message:
    if section.size > _LARGEST_MESSAGE:
        raise OmError(
            f"damaged: {section.name} has {section.size} bytes; a protobuf message has at most {_LARGEST_MESSAGE}",
            section.offset,
        )
    return Message(pieces.read(section.offset - pieces.start, section.size), section.offset, budget)


def _tasks(message: Message) -> Tasks:
    numbers = {11: 0, 12: 0, 13: 0, 14: 0}
    count = 0
    for number, kind, start, _ in message.fields():
        if kind == VARINT and number in numbers:
            numbers[number] = start
        elif kind == BYTES and number == 10:
            count += 1
    return Tasks(numbers[11], numbers[12], numbers[13], numbers[14], count)
