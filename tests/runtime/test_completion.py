"""The bridge from the device's callbacks to tokens, below devices and streams."""

from __future__ import annotations

import threading
import time

import pytest

from aioascend.driver import backend
from aioascend.driver.calls import Driver
from aioascend.emulator import Emulator
from aioascend.errors import AclError
from aioascend.runtime.completion import make_completion


@pytest.mark.parametrize("route", ["pyacl", "c"])
def test_a_stream_is_detached_only_when_its_callback_has_returned(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", route)
    monkeypatch.setenv("AIOASCEND_COMPLETION", "callback")
    driver = Driver(backend("emulator"), "emulator:0")
    driver.init()
    context = driver.create_context(0)
    stream = driver.create_stream()
    delivered = threading.Event()
    after: list[int] = []

    def deliver(token: int, error: AclError | None) -> None:
        delivered.set()
        time.sleep(0.05)  # the token is delivered, its callback has not returned
        after.append(token)

    completion = make_completion(driver, context, deliver, lambda error: None)
    completion.attach(stream)
    completion.arm(stream, 7)
    assert delivered.wait(10)
    # with the GIL held, as pyACL does, waiting for the callback would never end: strict mode refuses it
    completion.detach(stream)
    assert after == [7]
    completion.stop()
    driver.destroy_stream(stream)
    driver.destroy_context(context)
    driver.finalize()
