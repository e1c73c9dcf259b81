"""R42: the protocol of callbacks: synchronise, end the subscription, end the thread, destroy; and a callback that
raises stops nobody.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.emulator import Emulator, Profile
from aioascend.testing import stubbed
from tests import kit

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
ANSWER = X * kit.POS_WEIGHT


class Order:
    """The calls of an emulator that make up a teardown, as they return."""

    NAMES = (
        "subscribe_report", "unsubscribe_report", "launch_callback", "process_report", "synchronize_stream",
        "destroy_stream", "destroy_event", "free", "free_host", "destroy_context", "reset_device", "unload",
        "execute_async",
    )  # fmt: skip

    def __init__(self, emulator: Emulator) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], str]] = []
        for name in self.NAMES:
            module = emulator.acl.mdl if hasattr(emulator.acl.mdl, name) else emulator.acl.rt
            setattr(module, name, self._noted(name, getattr(module, name)))

    def _noted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            result = call(*arguments)
            self.calls.append((name, arguments, threading.current_thread().name))
            return result

        return noted

    def first(self, name: str) -> int:
        return next(index for index, call in enumerate(self.calls) if call[0] == name)

    def last(self, name: str) -> int:
        return len(self.calls) - 1 - next(index for index, call in enumerate(self.calls[::-1]) if call[0] == name)


@pytest.mark.emulated(profile=Profile(compute_default=0.02))
@pytest.mark.parametrize("drain", [True, False])
async def test_a_close_with_work_in_flight_keeps_the_order(emulator: Emulator, drain: bool) -> None:
    order = Order(emulator)
    session = aioascend.Session(kit.pos(), depth=2, instances=2)
    await session.open()
    tasks = [asyncio.create_task(session.infer(X)) for _ in range(8)]
    await asyncio.sleep(0.03)
    await session.aclose(drain=drain)
    await asyncio.gather(*tasks, return_exceptions=True)
    calls = order.calls
    for index, (name, arguments, _) in enumerate(calls):
        if name == "unsubscribe_report":
            stream = arguments[1]
            used = [i for i, call in enumerate(calls) if call[0] == "launch_callback" and call[1][3] == stream]
            synchronised = [i for i, call in enumerate(calls) if call[:2] == ("synchronize_stream", (stream,))]
            destroyed = [i for i, call in enumerate(calls) if call[:2] == ("destroy_stream", (stream,))]
            assert max(used) < max(synchronised) < index < min(destroyed)
    assert order.last("execute_async") < order.first("unload")
    assert order.last("destroy_stream") < order.first("unload")
    assert order.last("unload") < order.first("destroy_context") < order.first("reset_device")
    reports = [call for call in calls if call[0] == "process_report"]
    assert len({thread for _, _, thread in reports}) == 1
    assert order.last("process_report") < order.first("destroy_context")  # the thread had ended
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("aioascend-report")]


async def test_every_stream_has_one_subscription_and_the_thread_is_a_pthread_of_this_process() -> None:
    with stubbed() as stub:
        async with aioascend.Session(stub.model, devices="npu:0", instances=3) as session:
            await asyncio.gather(*(session.infer(np.zeros(4, np.float32)) for _ in range(30)))
            subscribed = [call.arguments for call in stub.log if call.function == "acl.rt.subscribe_report"]
            (report,) = [thread for thread in threading.enumerate() if thread.name.startswith("aioascend-report")]
            assert {thread for thread, _ in subscribed} == {report.ident}
            assert len({stream for _, stream in subscribed}) == len(subscribed) == 3
            launched = {call.arguments[3] for call in stub.log if call.function == "acl.rt.launch_callback"}
            assert launched == {stream for _, stream in subscribed}
        ended = [call.arguments for call in stub.log if call.function == "acl.rt.unsubscribe_report"]
        assert sorted(ended) == sorted(subscribed)
        stub.assert_balanced()


async def test_a_callback_that_raises_does_not_stop_the_loop(emulator: Emulator, standing) -> None:
    process, raising = emulator.acl.rt.process_report, 0

    def process_or_raise(timeout: int) -> int:
        nonlocal raising
        ret = process(timeout)
        if raising and ret == 0:
            raising -= 1
            raise SystemError("returned a result with an exception set")  # what pyACL does (reference §9)
        return int(ret)

    emulator.acl.rt.process_report = process_or_raise
    async with aioascend.Session(kit.pos()) as session, standing(session, X, ANSWER):
        raising = 3
        results = await asyncio.gather(*(session.infer(X * i) for i in range(20)))
        for i, outputs in enumerate(results):
            np.testing.assert_array_equal(outputs[0], ANSWER * i)
        for _ in range(20):
            await session.infer(X)
        assert raising == 0
