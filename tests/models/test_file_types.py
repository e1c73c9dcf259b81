"""The file type model tells files apart by a few bytes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

import aioascend

pytestmark = pytest.mark.parametrize("model", ["FILE_TYPE"], indirect=True)
ROOT = Path(__file__).parents[2]
CONTENTS = {
    "python": (ROOT / "examples" / "quickstart.py").read_bytes(),
    "json": json.dumps({"users": [{"id": 7, "name": "Ada", "tags": ["a", "b"]}] * 5}, indent=1).encode(),
    "html": b"<!DOCTYPE html>\n<html><head><title>t</title></head><body><h1>Hi</h1><p>text</p></body></html>\n",
    "csv": b"name,count,price\nbolt,12,0.50\nnut,7,0.25\n" * 9,
    "png": (ROOT / "examples" / "assets" / "page.png").read_bytes(),
    "wav": (ROOT / "examples" / "assets" / "speech.wav").read_bytes(),
    "elf": Path(sys.executable).resolve().read_bytes(),
}


async def test_each_file_gets_its_own_type_when_all_are_asked_at_once(model, example, opened):
    models = example("_models")
    labels = models.file_labels()
    async with opened(model) as session:
        inputs = [models.file_features(content) for content in CONTENTS.values()]
        results = await asyncio.gather(*(session.infer(x) for x in inputs))
    assert [labels[int(outputs["target_label"].argmax())] for outputs in results] == list(CONTENTS)


async def test_map_answers_in_the_order_of_the_files(model, example, opened):
    models = example("_models")
    labels = models.file_labels()
    order = list(CONTENTS) * 6
    async with opened(model) as session:
        inputs = [models.file_features(CONTENTS[kind]) for kind in order]
        found = [labels[int(outputs[0].argmax())] async for outputs in session.map(inputs)]
    assert found == order


async def test_an_array_of_the_wrong_integer_type_is_refused(model, example, opened):
    async with opened(model) as session:
        with pytest.raises(aioascend.InvalidInput, match=r"float64.*int32|int32.*float64"):
            await session.infer(example("_models").file_features(b"some bytes").astype("f8"))
