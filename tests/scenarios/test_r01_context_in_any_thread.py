"""R01: the current context belongs to a thread, and the user never sets one.

A session answers in its own loop, for coroutines sent from plain threads, in threads that were started after the load,
and in the threads of a web server, its streaming responses included.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

import aioascend
from aioascend.emulator import Emulator
from aioascend.testing import stubbed
from tests import kit

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


def answer(value: float) -> np.ndarray:
    return (X + np.float32(value)) * kit.POS_WEIGHT


@pytest.mark.usefixtures("emulator")
async def test_in_the_loop_from_plain_threads_and_in_threads_started_later(standing) -> None:
    loop = asyncio.get_running_loop()
    async with aioascend.Session(kit.pos()) as session, standing(session, X, answer(0)):
        np.testing.assert_array_equal((await session.infer(X))[0], answer(0))

        def sends_coroutines(number: int) -> None:
            for i in range(50):
                value = number * 100 + i
                outputs = asyncio.run_coroutine_threadsafe(session.infer(X + np.float32(value)), loop).result(30)
                np.testing.assert_array_equal(outputs[0], answer(value))

        def starts_after_the_load(number: int) -> None:
            np.testing.assert_array_equal(session.infer_sync(X + np.float32(number))[0], answer(number))

        with ThreadPoolExecutor(8) as pool:
            await asyncio.gather(*(loop.run_in_executor(pool, sends_coroutines, number) for number in range(8)))
        for number in range(3):
            failures: list[BaseException] = []

            def first_act(number: int = number, failures: list[BaseException] = failures) -> None:
                try:
                    starts_after_the_load(number)
                except BaseException as error:
                    failures.append(error)

            thread = threading.Thread(target=first_act)
            thread.start()
            await asyncio.to_thread(thread.join)
            assert failures == []


@pytest.mark.usefixtures("emulator")
async def test_in_handlers_and_streaming_responses_of_a_web_server(standing) -> None:
    async with aioascend.Session(kit.pos()) as session, standing(session, X, answer(0)):
        app = FastAPI()

        @app.get("/loop/{value}")
        async def in_the_loop(value: int) -> list[float]:
            return (await session.infer(X + np.float32(value)))[0].ravel().tolist()

        @app.get("/worker/{value}")
        def in_a_worker(value: int) -> list[float]:
            return session.infer_sync(X + np.float32(value))[0].ravel().tolist()

        @app.get("/chunks")
        async def chunks() -> StreamingResponse:
            async def body() -> AsyncIterator[bytes]:
                for value in range(5):
                    yield (await session.infer(X + np.float32(value)))[0].tobytes()

            return StreamingResponse(body())

        @app.get("/chunks-of-a-thread")
        def chunks_of_a_thread() -> StreamingResponse:
            def body() -> Iterator[bytes]:  # the server runs each step of it in whatever pool thread is free
                for value in range(5):
                    yield session.infer_sync(X + np.float32(value))[0].tobytes()

            return StreamingResponse(body())

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            paths = [(f"/{where}/{value}", value) for where in ("loop", "worker") for value in range(10)]
            replies = await asyncio.gather(*(client.get(path) for path, _ in paths))
            for (_, value), reply in zip(paths, replies, strict=True):
                assert reply.json() == answer(value).ravel().tolist()
            for path in ("/chunks", "/chunks-of-a-thread"):
                reply = await client.get(path)
                assert reply.content == b"".join(answer(value).tobytes() for value in range(5))


async def test_no_call_is_made_without_the_right_context_and_callers_make_none() -> None:
    with stubbed() as stub:
        async with aioascend.Session(stub.model, devices="npu:0") as session:
            made = len(stub.live("context"))
            (context,) = {one.handle for one in stub.live("context")}
            opened = stub.total
            x = np.zeros(4, np.float32)
            with ThreadPoolExecutor(8) as pool:
                loop = asyncio.get_running_loop()
                await asyncio.gather(*(loop.run_in_executor(pool, session.infer_sync, x) for _ in range(100)))
            await asyncio.gather(*(session.infer(x) for _ in range(100)))
            used = [call for call in stub.log if call.number > opened]
            assert {call.context for call in used if call.function.startswith(("acl.rt", "acl.mdl"))} == {context}
            assert len(stub.live("context")) == made
        assert [call for call in stub.log if call.code == 107002] == []
        stub.assert_balanced()


async def test_a_hundred_calling_threads_need_no_context_of_their_own(emulator: Emulator) -> None:
    async with aioascend.Session(kit.add(1)) as session:
        before = [leak.kind for leak in emulator.report().leaks].count("context")
        with ThreadPoolExecutor(100) as pool:
            loop = asyncio.get_running_loop()
            x = np.zeros(4, np.float32)
            results = await asyncio.gather(*(loop.run_in_executor(pool, session.infer_sync, x) for _ in range(300)))
        assert {float(outputs[0][0]) for outputs in results} == {1.0}
        assert [leak.kind for leak in emulator.report().leaks].count("context") == before
