"""Each planted mistake is named by the report, with the line it was made on, and by the exit code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aioascend.cli.emulate import FOUND_SOMETHING

from .conftest import HERE, Ended, Runner

Emulate = Callable[..., Ended]

# The mistake, what the report says, and a piece of the line of mistakes.py that it names.
MISTAKES = [
    ("missing free", r"device memory 0x\w+ of 32 bytes on device 0", "acl.rt.malloc(SIZE"),
    ("missing free_host", r"pinned memory 0x\w+ of 32 bytes", "acl.rt.malloc_host(SIZE"),
    ("missing destroy_stream", r"stream 0x\w+ on device 0", "acl.rt.create_stream()"),
    ("missing destroy_event", r"event 0x\w+ on device 0", "acl.rt.create_event_ex_with_flag("),
    ("missing destroy_context", r"context 0x\w+ on device 0", "acl.rt.create_context(0)"),
    ("missing destroy_data_buffer", r"data buffer 0x\w+", "acl.create_data_buffer("),
    ("missing destroy_dataset", r"dataset 0x\w+", "acl.mdl.create_dataset()"),
    ("missing destroy_desc", r"model description 0x\w+", "acl.mdl.create_desc()"),
    ("missing unload", r"model 1\b", "acl.mdl.load_from_file("),
    ("missing reset_device", r"device 0\b", "acl.rt.set_device(0)"),
    ("missing finalize", r"acl\.finalize", ""),
    ("double free", "double-free", "rt.free(spare)"),
    ("device memory freed as pinned", "free", "rt.free_host(other)"),
    ("use after free", "use-after-free", "rt.memcpy(self.host, SIZE, spare"),
    ("free of memory in use", "free-in-use", "rt.free(spare)"),
    ("overflow of dst_max", "overflow", "2 * SIZE"),
    ("copy beyond the end of a block", "overflow", "64 * SIZE"),
    ("one model on two streams", "model-on-two-streams", "*self.datasets, other)"),
    ("acl call in a callback", "call-in-callback", "rt.malloc_host(SIZE)"),
    ("pageable memory in memcpy_async", "pageable-async-copy", "x.ctypes.data"),
    ("callback on an unsubscribed stream", "unsubscribed-stream", "None, 0, other)"),
    ("stream of another context", "foreign-stream", "rt.synchronize_stream(stream)"),
    ("no context", "no-context", "rt.create_stream()"),
    ("model unloaded in use", "unload-in-use", "acl.mdl.unload(model)"),
    ("event destroyed twice", "stale-handle", "rt.destroy_event(event)"),
    ("context destroyed before its streams", "teardown-order", "acl.rt.destroy_context(self.context))"),
    ("reset before everything", "teardown-order", "acl.rt.reset_device(0)"),
    ("finalize before everything", r"stream 0x\w+", "acl.rt.create_stream()"),
    ("finalize before everything", "after-finalize", "acl.rt.destroy_context(self.context)"),
]


@pytest.fixture(scope="module", autouse=True)
def all_started(runner: Runner) -> None:
    for mistake in ("none", "use in a forked child", *(mistake for mistake, _, _ in MISTAKES)):
        runner.start("--strict", "mistakes.py", str(runner.plain), mistake)


@pytest.mark.parametrize("mistake, said, line", MISTAKES, ids=[mistake.replace(" ", "-") for mistake, _, _ in MISTAKES])
def test_a_mistake_is_named(emulate: Emulate, runner: Runner, mistake: str, said: str, line: str) -> None:
    ended = emulate("--strict", "mistakes.py", runner.plain, mistake)
    report = ended.err[ended.err.index("aioascend: ") :]
    about = [one for one in report.splitlines() if re.search(said, one)]
    assert about, report
    source = (HERE / "mistakes.py").read_text().splitlines()
    named = [int(number) for one in about for number in re.findall(r"mistakes\.py:(\d+)", one)]
    assert any(line in source[number - 1] for number in named) or not line, report
    assert ended.code == FOUND_SOMETHING
    assert "Traceback" not in ended.err


def test_without_a_mistake_nothing_is_named(emulate: Emulate, runner: Runner) -> None:
    ended = emulate("--strict", "mistakes.py", runner.plain, "none")
    assert (ended.code, ended.lines) == (0, [[str(2.0 * n + 1) for n in range(8)]])


def test_a_forked_child_is_told_that_it_cannot_use_its_parent_s_device(emulate: Emulate, runner: Runner) -> None:
    ended = emulate("--strict", "mistakes.py", runner.plain, "use in a forked child")
    assert ended.code == 0  # the parent has done nothing wrong
    assert ended.out.startswith("the child's call was refused\n")
    assert re.search(r"warning: used-in-forked-child: .* \(acl\.rt\.synchronize_stream at \S+mistakes\.py", ended.err)


def test_mistakes_go_unpunished_without_strict_and_are_told_all_the_same(emulate: Emulate, runner: Runner) -> None:
    ended = emulate("mistakes.py", runner.plain, "missing free")
    assert ended.code == 0
    assert re.search(r"device memory 0x\w+ of 32 bytes on device 0, made at \S+mistakes\.py:\d+ in ", ended.err)


def test_every_mistake_of_the_program_is_tried() -> None:
    source = Path(HERE / "mistakes.py").read_text()
    planted = set(re.findall(r'MISTAKE == "([^"]+)"', source))
    planted |= {f"missing {what}" for what in re.findall(r'forgotten\("(\w+)"\)', source)}
    assert planted - {mistake for mistake, _, _ in MISTAKES} == {"use in a forked child"}
