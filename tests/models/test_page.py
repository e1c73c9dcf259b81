"""A page of text is turned upright and read by three models, however it was turned before."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "examples" / "assets" / "page.png"
LINES = ["ASYNC INFERENCE", "Hello NPU 310P", "three streams, one await", "Order 2024-17 total 86.50"]


def page(turned: int):
    image = pytest.importorskip("PIL.Image")
    return image.open(PAGE).convert("RGB").rotate(-turned, expand=True)


@pytest.mark.parametrize("model", ["ORIENTATION"], indirect=True)
async def test_the_four_rotations_of_a_page_are_told_apart(model, example, opened):
    read_page = example("read_page")
    async with opened(model) as session:
        for turned in (0, 90, 180, 270):
            found, sure = await read_page.orientation(session, page(turned))
            assert found == turned
            assert sure > 0.8


@pytest.mark.parametrize("model", ["TEXT_PLACES"], indirect=True)
@pytest.mark.parametrize("turned", [0, 180])
async def test_the_text_drawn_on_a_page_is_read(model, example, turned, opened):
    read_page, models = example("read_page"), example("_models")
    characters = read_page.known_characters()
    async with contextlib.AsyncExitStack() as stack:
        turns, places, reader = [
            await stack.enter_async_context(opened(each)) for each in (models.ORIENTATION, model, models.TEXT_LINE)
        ]
        picture = page(turned)
        found, _ = await read_page.orientation(turns, picture)
        lines = await read_page.text_lines(places, picture.rotate(found, expand=True))
        read = await asyncio.gather(*(read_page.read_line(reader, line, characters) for line in lines))
    assert [text for text, _ in read] == LINES
    assert min(sure for _, sure in read) > 0.9
