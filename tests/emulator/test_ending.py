"""`Emulator.end_runs`: whoever closes a model need not wait for what it computes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from aioascend.emulator import Config, Emulator, Profile

from .kit import Driver, doubler, slow


@pytest.mark.parametrize("profile", [None, Profile(compute_default=30.0)], ids=["as long as it takes", "by a profile"])
def test_a_run_under_way_and_those_behind_it_fail_at_once(profile: Profile | None) -> None:
    emulator = Emulator(Config(profile=profile))
    assert emulator.acl.init() == 0
    try:
        driver = Driver(emulator)
        long = driver.load(doubler((500, 500)) if profile else slow(3000))
        x, small = np.ones((500, 500), np.float32), np.ones((2, 3), np.float32)
        stream, other = driver.stream(), driver.stream()
        for _ in range(2):
            inputs, outputs, _ = driver.bind([x], [x])
            driver.ok(driver.mdl.execute_async(long, inputs, outputs, stream))
        time.sleep(0.1)
        started = time.monotonic()
        emulator.end_runs(long)
        assert driver.rt.synchronize_stream(stream) == 507011
        assert time.monotonic() - started < 5
        if profile is None:  # another model is not touched
            inputs, outputs, _ = driver.bind([small], [small])
            driver.ok(driver.mdl.execute_async(driver.load(doubler()), inputs, outputs, other))
            driver.ok(driver.rt.synchronize_stream(other))
        driver.ok(driver.mdl.unload(long))
        emulator.end_runs(long)
        emulator.end_runs(12345)
    finally:
        emulator.shutdown()
