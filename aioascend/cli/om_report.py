"""An offline model, or what differs between two, as tables for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from aioascend.om import Advice, OmFile, OmTensor, advice, compare, summary

from .tables import printable, shape_text, table

_MOST_ROWS = 40
_WIDTH = 118
_CELL = 60
# A space at which no line ends.
_TIED = "\x1f"


def report(path: str, om: OmFile) -> str:
    """Everything that is worth a look, in blocks with an empty line between."""
    return "\n\n".join(_blocks(path, om))


def _blocks(path: str, om: OmFile) -> Iterator[str]:
    yield f"{printable(path)}\n{_pairs(summary(om))}"
    for index, model in enumerate(om.models):
        if index == _MOST_ROWS:
            yield f"... and {len(om.models) - index} more models"
            break
        rows = [
            (one.name, str(one.offset), str(one.size), f"{one.size / om.size:.1%}")
            for one in model.sections[:_MOST_ROWS]
        ]
        title = "sections" if len(om.models) == 1 else f"sections of model {index}"
        listed = table(("name", "offset", "bytes", "share"), rows, right=("offset", "bytes", "share"))
        yield f"{title}\n{listed}{_more(len(model.sections))}"
    if om.inputs or om.outputs:
        yield f"inputs\n{_tensors(om.inputs)}"
        yield f"outputs\n{_tensors(om.outputs)}"
    if om.definition is not None:
        types = om.definition.op_types
        told = ", ".join(f"{printable(name)}{_TIED}{count}" for name, count in list(types.items())[:_MOST_ROWS])
        rest = f" and {len(types) - _MOST_ROWS} more types" if len(types) > _MOST_ROWS else ""
        yield f"{om.definition.op_count} operators\n{_wrapped(told + rest)}"
    for index, inner in enumerate(om.bundled[:_MOST_ROWS]):
        yield f"model {index} of the bundle: " + report("", inner).strip()
    if om.notes:
        yield "the file contradicts itself\n" + "\n".join(_wrapped(printable(note)) for note in om.notes[:_MOST_ROWS])
    found = advice(om)
    if found:
        yield "what to look at\n" + "\n".join(_wrapped(printable(_line(one))) for one in found)


def _line(found: Advice) -> str:
    text = f"{found.topic}: {found.finding}"
    return f"{text}. {found.advice[0].upper()}{found.advice[1:]}" if found.advice else text


def comparison(paths: Sequence[str], files: Sequence[OmFile]) -> str:
    """What differs between two models, then what does not."""
    different, same = compare(*files)
    if not different:
        return f"{printable(paths[0])} and {printable(paths[1])} do not differ in what is shown of a model"
    rows = [(label, *_where_they_differ(one, other)) for label, one, other in different]
    blocks = [f"{len(different)} differences\n{table(('', *paths), rows)}"]
    if same:
        blocks.append("the same in both\n" + table(("", "value"), [(label, _short(value)) for label, value in same]))
    return "\n\n".join(blocks)


def _pairs(lines: dict[str, str]) -> str:
    width = max(map(len, lines))
    return "\n".join(f"  {label.ljust(width)}  {printable(value)}" for label, value in lines.items())


def _tensors(tensors: Sequence[OmTensor]) -> str:
    rows = [
        (
            one.name,
            one.dtype,
            one.format,
            shape_text(one.shape),
            str(one.nbytes),
            one.aipp and f"AIPP: {one.aipp}",
        )
        for one in tensors[:_MOST_ROWS]
    ]
    heading = ("name", "dtype", "format", "shape", "bytes", "")
    return table(heading, rows, right=("bytes",)) + _more(len(tensors))


def _more(count: int) -> str:
    return f"\n... and {count - _MOST_ROWS} more" if count > _MOST_ROWS else ""


def _wrapped(text: str) -> str:
    lines = textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return lines.replace(_TIED, " ")


def _where_they_differ(one: str, other: str) -> tuple[str, str]:
    """Two values, shortened so that what differs is seen, as of two command lines with the same program."""
    if max(len(one), len(other)) > _CELL:
        shorter = min(len(one), len(other))
        alike = next((at for at in range(shorter) if one[at] != other[at]), shorter)
        if alike > _CELL - 20:
            one, other = (f"...{value[alike - 10 :]}" for value in (one, other))
    return _short(one), _short(other)


def _short(value: str) -> str:
    return value if len(value) <= _CELL else f"{value[: _CELL - 3]}..."
