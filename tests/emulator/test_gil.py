"""Who holds the GIL: pyACL's functions by the table of the reference, the C library's never."""

from __future__ import annotations

import re
import threading

from aioascend.emulator import gil

from ..driver.reference import section


def test_the_table_of_released_functions_is_the_references() -> None:
    row = next(line for line in section(3).splitlines() if line.startswith("| **Released**"))
    listed = {f"acl.{name}" for name in re.findall(r"`([a-z]+\.[a-z_]+)`", row)}
    assert len(listed) == 9
    assert listed == gil.RELEASED


def test_calls_by_the_c_door_hold_nothing() -> None:
    elsewhere: list[bool] = []
    with gil.released():
        with gil.released():
            assert not gil.holds("acl.rt.destroy_stream")
        assert not gil.holds("acl.rt.destroy_stream")
        other = threading.Thread(target=lambda: elsewhere.append(gil.holds("acl.rt.destroy_stream")))
        other.start()
        other.join()
    assert elsewhere == [True]
    assert gil.holds("acl.rt.destroy_stream")
    assert not gil.holds("acl.rt.synchronize_stream")
