"""A device thread that is hit by an exception between two steps of a request: the request is told, or served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend
from aioascend.runtime.pipeline import Pipeline
from tests import kit
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("emulator", "probed_soon"), pytest.mark.logs_errors]

LARGE = 1 << 19  # elements: copied by the worker, and not by the device thread


class Hits:
    """Raises `SystemExit`, as a thread is hit by it, the first time that it is called."""

    def __init__(self) -> None:
        self.came = 0

    def __call__(self) -> None:
        self.came += 1
        if self.came == 1:
            raise SystemExit("thrown into the thread")


def when_claimed(pipeline: Pipeline, hit: Hits) -> None:
    """Its inputs are nobody's: the caller's no more, and not in pinned memory."""

    class Staging(list):  # type: ignore[type-arg]
        def pop(self, *args: Any) -> Any:
            hit()
            return super().pop(*args)

    pipeline._staging = Staging(pipeline._staging)


def when_in_line(pipeline: Pipeline, hit: Hits) -> None:
    """It stands in line, and nobody was asked to look."""
    later = pipeline._later

    def hit_first(function: Callable[[], None]) -> None:
        hit()
        later(function)

    pipeline._later = hit_first  # type: ignore[assignment,method-assign]


def when_run(pipeline: Pipeline, hit: Hits) -> None:
    """Its run is over and its place free, and it has no outcome."""
    succeed = pipeline._succeed

    def hit_first(*args: Any) -> None:
        hit()
        succeed(*args)

    pipeline._succeed = hit_first  # type: ignore[method-assign]


def when_told(pipeline: Pipeline, hit: Hits) -> None:
    """It has its outcome, and is not let go of."""

    class Live(set):  # type: ignore[type-arg]
        def discard(self, element: Any) -> None:
            hit()
            super().discard(element)

    pipeline._live = Live(pipeline._live)


@pytest.mark.parametrize("count", [4, LARGE], ids=["inline", "by the worker"])
@pytest.mark.parametrize(
    "put, served",
    [(when_claimed, False), (when_in_line, True), (when_run, False), (when_told, True)],
    ids=["claimed", "in line", "run", "told"],
)
async def test_a_request_is_told_or_served(put: Callable[[Pipeline, Hits], None], served: bool, count: int) -> None:
    x, hit = np.ones(count, np.float32), Hits()
    async with aioascend.Session(kit.add(1, count), depth=2) as session:
        pipeline = session._usable()
        put(pipeline, hit)
        with anyio.fail_after(20):
            if served:
                np.testing.assert_array_equal((await session.infer(x))[0], x + 1)
            else:
                with pytest.raises(aioascend.AclError, match="SystemExit"):
                    await session.infer(x)
            assert hit.came
            await eventually(lambda: session.ready, seconds=20)
            np.testing.assert_array_equal((await session.infer(x))[0], x + 1)
            await eventually(lambda: not pipeline._live and pipeline.admission.idle, seconds=20)
