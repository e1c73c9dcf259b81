"""R13: a model that does not load is told in one error: the file, the code, its name, the driver's words, both chips.

It takes no five seconds, and the process and the device stay usable.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioascend
from aioascend.testing import stubbed
from tests import kit
from tests.om import writer

ZEROS = np.zeros(4, np.float32)


@pytest.mark.usefixtures("emulator")
async def test_each_bad_file_names_itself_and_leaves_everything_usable(tmp_path: Path) -> None:
    reasons = {
        "half": "half.onnx",
        "empty": "is empty; wanted an .om or .onnx model",
        "random": "random.onnx",
        "missing": "No such file",
        "directory": "it is a directory",
    }
    async with aioascend.Session(kit.add(1)) as other:
        for name, path in kit.bad_files(tmp_path).items():
            started = time.monotonic()
            session = aioascend.Session(path)
            with pytest.raises(aioascend.ModelLoadError, match=reasons[name]) as caught:
                await session.open()
            assert time.monotonic() - started < 5
            assert path.name in str(caught.value)
            assert "\n" not in str(caught.value)
            with pytest.raises(aioascend.SessionClosed):
                await session.infer(ZEROS)
            await session.aclose()
            assert (await other.infer(ZEROS))[0][0] == 1
        async with aioascend.Session(kit.add(2)) as good:
            assert (await good.infer(ZEROS))[0][0] == 2


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize(
    "model, reason",
    [
        (b"", "bytes are empty"),
        (kit.unknown_operator(), "NoSuchOperator"),
        (writer.simple(), "give the .onnx it was made from"),
        (writer.simple()[:700], "at byte 184: cut short"),
        (kit.nonzero(), "'where'"),
        (b"this is no model\n" * 10, "bytes"),
    ],
    ids=[
        "no bytes",
        "an unknown operator",
        "an offline model",
        "half an offline model",
        "an output without a shape",
        "text",
    ],
)
async def test_each_bad_model_in_memory_says_what_is_wrong(model: bytes, reason: str) -> None:
    with pytest.raises(aioascend.ModelLoadError, match=reason) as caught:
        await aioascend.Session(model).open()
    assert "\n" not in str(caught.value)
    async with aioascend.Session(kit.add(1)) as session:
        assert (await session.infer(ZEROS))[0][0] == 1


@pytest.mark.parametrize("code, name", [(545001, "LOAD_MODEL"), (145006, "MODEL_DATA_SIZE_INVALID"), (500002, "GE")])
def test_what_the_driver_refuses_carries_its_code_its_name_and_its_own_words(code: int, name: str) -> None:
    with stubbed() as stub:
        stub.fail("acl.mdl.load_from_mem", code)
        with pytest.raises(aioascend.ModelLoadError) as caught:
            aioascend.Session(stub.model, devices="npu:0").open_sync()
        text = describe(caught.value)
        for part in (str(code), name, "acl.mdl.load_from_mem", "npu:0", "was told to fail"):
            assert part in text
        with aioascend.Session(stub.model, devices="npu:0") as session:
            session.infer_sync(ZEROS)
        stub.assert_balanced()


def describe(error: BaseException) -> str:
    """Everything that a traceback shows of it."""
    cause: BaseException | None = error
    parts: list[Any] = []
    while cause is not None:
        parts += [cause, *getattr(cause, "__notes__", [])]
        cause = cause.__cause__
    return "\n".join(map(str, parts))
