"""What holds at the end of every scenario, whatever happened in it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from tests.waiting import eventually

_AT_ONCE = 10.0  # a good inference is there "within 1 s"; a shared machine gets ten


class Standing:
    """``async with standing(session, x, y):`` around the steps of a scenario; plain ``with`` where no loop runs.

    Before them the session is warmed up. After them: nothing in flight, no buffer leased, as many free buffers and as
    many threads of ours as before, the loop's exception handler never called, and an inference of `x` gives `y`.
    """

    def __init__(self, session: aioascend.Session, x: Any, y: np.ndarray) -> None:
        self.session = session
        self.x = x
        self.y = y
        self.complaints: list[dict[str, Any]] = []
        self._before: tuple[object, ...] = ()

    async def __aenter__(self) -> Standing:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.complaints.append(context))
        for _ in range(2):
            await self._good()
        await eventually(self._quiet)
        self._before = self._counts()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        gc.collect()
        await eventually(self._quiet, seconds=20)
        await self._good()
        await eventually(self._quiet)
        with contextlib.suppress(AssertionError):  # compared below, which says what differs
            await eventually(lambda: self._counts() == self._before)
        assert self._counts() == self._before
        await asyncio.sleep(0)
        assert self.complaints == []

    async def _good(self) -> None:
        with anyio.fail_after(_AT_ONCE):
            np.testing.assert_array_equal((await self.session.infer(self.x))[0], self.y)

    def __enter__(self) -> Standing:
        for _ in range(2):
            self._good_sync()
        _wait(self._quiet)
        self._before = self._counts()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        gc.collect()
        _wait(self._quiet)
        self._good_sync()
        _wait(self._quiet)
        with contextlib.suppress(AssertionError):
            _wait(lambda: self._counts() == self._before)
        assert self._counts() == self._before

    def _good_sync(self) -> None:
        np.testing.assert_array_equal(self.session.infer_sync(self.x, timeout=_AT_ONCE)[0], self.y)

    def _quiet(self) -> bool:
        now = self.session.statistics()
        return not (now.waiting or now.staging or now.running or now.draining or now.leased)

    def _counts(self) -> tuple[object, ...]:
        pipeline = self.session._pipeline
        assert pipeline is not None
        buffers = len(pipeline._staging), [(len(lane._free), len(lane.outlets)) for lane in pipeline._lanes]
        threads = sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("aioascend"))
        # The first ends just as the session is open, the second starts with the first large copy.
        return buffers, [name for name in threads if not name.startswith(("aioascend-open", "aioascend-copy"))]


def _wait(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it never came to hold"
        time.sleep(0.002)


@pytest.fixture
def standing() -> type[Standing]:
    """The standing checks of the scenarios, to be held around a session in use."""
    return Standing
