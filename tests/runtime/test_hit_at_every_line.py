"""An exception that is thrown into a thread of ours at any line of a request's way leaves nobody waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.runtime.core import DeviceCore
from aioascend.runtime.device_loop import DeviceLoop
from aioascend.runtime.lane import Lane
from aioascend.runtime.pipeline import Pipeline
from aioascend.runtime.request import Request
from aioascend.runtime.signal import Signal
from aioascend.scheduling.admission import Admission
from aioascend.scheduling.line import Line
from tests import kit
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("emulator", "probed_soon"), pytest.mark.logs_errors]


class Hits:
    """Raises `SystemExit` on a thread of ours when it comes to a line, once."""

    def __init__(self) -> None:
        self._code: CodeType | None = None
        self._line = 0

    def at(self, code: CodeType, line: int) -> None:
        self._line, self._code = line, code

    def pending(self) -> bool:
        """Whether nobody has come there."""
        pending, self._code = self._code is not None, None
        return pending

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is self._code:
            if event == "line" and frame.f_lineno == self._line:
                self._code = None
                raise SystemExit
            return self.trace
        return None if event == "call" else self.trace


@pytest.fixture
def hits() -> Iterator[Hits]:
    before = threading.gettrace()
    hits = Hits()
    threading.settrace(hits.trace)
    yield hits
    threading.settrace(before)  # type: ignore[arg-type]


WAY: tuple[Callable[..., Any], ...] = (
    DeviceLoop._burst, Pipeline._offer, Admission.offer, Pipeline._settle, Pipeline._stage, Pipeline._copy_in,
    Lane.launch, Lane._queue_run, Lane.arm, DeviceCore.arm, DeviceCore._arrived, Lane.confirm, Pipeline._conclude,
    Lane.free, Admission.finished, Admission.decide, Admission._take_everybody, Line.add, Line.take_all,
    Pipeline._succeed, Signal.set, Request.take,
)  # fmt: skip


@pytest.mark.parametrize("function", WAY, ids=lambda function: function.__qualname__)
async def test_a_request_ends_wherever_the_thread_that_works_on_it_is_hit(
    function: Callable[..., Any], hits: Hits
) -> None:
    code = function.__code__
    lines = sorted({line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno})
    x, came = np.ones(4, np.float32), 0
    async with aioascend.Session(kit.add(1), depth=2) as session:
        for line in lines:
            hits.at(code, line)
            with anyio.fail_after(20):
                try:
                    np.testing.assert_array_equal((await session.infer(x))[0], x + 1)
                except aioascend.AioascendError:
                    pass
                came += not hits.pending()
                await eventually(lambda: session.ready, seconds=20)
                np.testing.assert_array_equal((await session.infer(x))[0], x + 1)
    assert came >= min(2, len(lines))


async def test_requests_that_are_launched_together_end_too(hits: Hits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lane, "_learn", lambda self, seconds: setattr(self, "_most_unarmed", 100))
    code = Lane._queue_train.__code__
    lines = sorted({line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno})
    came = 0

    async def infer(number: int) -> None:
        x = np.full(4, number, np.float32)
        try:
            np.testing.assert_array_equal((await session.infer(x))[0], x + 1)
        except aioascend.AioascendError:
            pass

    async with aioascend.Session(kit.add(1), depth=4) as session:
        await infer(0)
        for line in lines:
            hits.at(code, line)
            with anyio.fail_after(20):
                await asyncio.gather(*map(infer, range(4)))
                came += not hits.pending()
                await eventually(lambda: session.ready, seconds=20)
                await infer(0)
                np.testing.assert_array_equal((await session.infer(np.ones(4, np.float32)))[0], 2)
    assert came > 10
