"""The bridge from the device's callbacks to tokens, below devices and streams."""

from __future__ import annotations

import threading

import pytest

from aioascend.driver import backend
from aioascend.driver.calls import Driver
from aioascend.emulator import Emulator
from aioascend.errors import AclError
from aioascend.runtime.completion import make_completion


@pytest.mark.parametrize("route", ["pyacl", "c"])
def test_a_token_is_delivered_when_its_callback_has_returned_so_that_its_stream_can_be_detached(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    monkeypatch.setenv("AIOASCEND_DRIVER", route)
    monkeypatch.setenv("AIOASCEND_COMPLETION", "callback")
    driver = Driver(backend("emulator"), "emulator:0")
    driver.init()
    context = driver.create_context(0)
    stream = driver.create_stream()
    delivered, detached = threading.Event(), threading.Event()
    told: list[int] = []

    def deliver(tokens: list[int], error: AclError | None) -> None:
        told.extend(tokens)
        delivered.set()
        assert detached.wait(10)

    completion = make_completion(driver, context, deliver, lambda error: None)
    completion.attach(stream)
    completion.arm(stream, 7)
    assert delivered.wait(10)
    # with the GIL held, as pyACL does, waiting for a callback in progress would never end: strict mode refuses it
    completion.detach(stream)
    detached.set()
    assert told == [7]
    completion.stop()
    driver.destroy_stream(stream)
    driver.destroy_context(context)
    driver.finalize()
