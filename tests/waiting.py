"""Waiting for what happens on another thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Return as soon as `condition` holds; fail after `seconds`."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it never came to hold"
        await asyncio.sleep(0.001)
