"""`aioascend emulate --strict` tells a program on three streams that lacks an edge both lines, and ends with 70."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from aioascend.cli.emulate import FOUND_SOMETHING

from .conftest import HERE, Ended, Runner

SOURCE = (HERE / "unordered.py").read_text().splitlines()
COPY_IN, RUN, COPY_OUT = "self.host[0], SIZE, H2D, h2d)", "execute_async(self.model", "self.device[1], SIZE, D2H, d2h)"

# what is wrong, the rule, and pieces of the two lines of unordered.py
WRONG = [
    ("missing wait", "race", COPY_IN, RUN),
    ("wait for the wrong event", "race", COPY_IN, RUN),
    ("record on the wrong stream", "race", COPY_IN, RUN),
    ("wait before record", "race", COPY_IN, RUN),
    ("next run before the copy", "race", COPY_OUT, RUN),
    ("stage buffer reused early", "changed-while-queued", COPY_IN, "synchronize_stream(d2h)"),
    ("input overwritten while queued", "race", COPY_IN, "acl.rt.memset("),
    ("output read before its copy", "race", COPY_OUT, "acl.util.ptr_to_bytes("),
]


@pytest.fixture(scope="module", autouse=True)
def all_started(runner: Runner) -> None:
    for wrong in ("nothing", *(wrong for wrong, *_ in WRONG)):
        runner.start("--strict", "unordered.py", str(runner.plain), wrong)


@pytest.mark.parametrize("wrong, rule, first, second", WRONG, ids=[wrong.replace(" ", "-") for wrong, *_ in WRONG])
def test_an_edge_that_is_missing_is_told_with_both_lines(
    emulate: Callable[..., Ended], runner: Runner, wrong: str, rule: str, first: str, second: str
) -> None:
    ended = emulate("--strict", "unordered.py", runner.plain, wrong)
    report = ended.err[ended.err.index("aioascend: ") :]
    assert ended.code == FOUND_SOMETHING, ended.err
    told = [line for line in report.splitlines() if line.lstrip().startswith(f"{rule}: ")]
    pairs = [[SOURCE[int(number) - 1] for number in re.findall(r"unordered\.py:(\d+)", line)[:2]] for line in told]
    assert any(first in one and second in other for one, other in pairs), report


def test_nothing_is_told_where_nothing_is_wrong(emulate: Callable[..., Ended], runner: Runner) -> None:
    ended = emulate("--strict", "unordered.py", runner.plain, "nothing")
    assert "the program left nothing behind and did nothing that hardware forbids" in ended.err
    assert ended.code == 0
    assert len(ended.lines) == 3
