"""R21: load, execute and unload happen in one context, whichever threads asked, and nothing after the reset."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import aioascend
from aioascend.runtime import process
from aioascend.testing import stubbed

X = np.zeros(4, np.float32)


def in_a_thread(function: object, *arguments: object) -> None:
    thread = threading.Thread(target=function, args=arguments)  # type: ignore[arg-type]
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_loaded_used_and_collected_in_threads_of_their_own() -> None:
    with stubbed() as stub:
        kept = [aioascend.Session(stub.model, devices="npu:0")]
        in_a_thread(kept[0].open_sync)
        for _ in range(3):
            in_a_thread(kept[0].infer_sync, X)

        def collect() -> None:
            kept.clear()
            gc.collect()

        in_a_thread(collect)
        for _ in range(2000):
            if not process.open_devices() and stub.counts["acl.rt.reset_device"]:
                break
            threading.Event().wait(0.005)
        names = ("acl.mdl.load_from_mem", "acl.mdl.execute_async", "acl.mdl.unload")
        contexts = {name: {call.context for call in stub.log if call.function == name} for name in names}
        assert all(len(found) == 1 for found in contexts.values()), contexts
        assert len(set.union(*contexts.values())) == 1
        (reset,) = [call.number for call in stub.log if call.function == "acl.rt.reset_device"]
        late = {call.function for call in stub.log if call.number > reset}
        assert late <= {"acl.get_recent_err_msg"}
        stub.assert_balanced()


def test_a_second_open_has_a_context_of_its_own_and_never_the_old_one() -> None:
    with stubbed() as stub:
        seen: list[set[int | None]] = []
        for _ in range(3):
            start = stub.total
            with aioascend.Session(stub.model, devices="npu:0") as session:
                session.infer_sync(X)
            calls = [call for call in stub.log if call.number > start and call.function.startswith("acl.mdl.execute")]
            seen.append({call.context for call in calls})
        assert len(set.union(*seen)) == 3
        assert [call for call in stub.log if call.code in (107002, 107003)] == []
        stub.assert_balanced()
