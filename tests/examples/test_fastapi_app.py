"""The web example: answers, refusals, disconnects and the life of its session."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
from pathlib import Path

import pytest

httpx = pytest.importorskip("httpx")

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = (EXAMPLES / "assets" / "page.png").read_bytes()
HTML = b"<!DOCTYPE html>\n<html><head><title>t</title></head><body><h1>Hi</h1><p>text</p></body></html>\n"


@pytest.fixture
def module(monkeypatch):
    """examples/fastapi_app.py; skips when its packages or its model are not installed."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("AIOASCEND_DEVICES", "emulator:0")
    try:
        import fastapi_app

        fastapi_app.FILE_TYPE.find()
    except SystemExit as error:
        pytest.skip(str(error))
    return fastapi_app


@contextlib.asynccontextmanager
async def serving(app):
    """A client of the app, its lifespan run around it."""
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
            yield client


async def test_a_file_sent_is_answered_with_its_type(module):
    async with serving(module.create_app()) as client:
        answers = await asyncio.gather(*(client.post("/type", content=body) for body in [HTML, PAGE] * 10))
    assert [answer.status_code for answer in answers] == [200] * 20
    assert [answer.json()["type"] for answer in answers] == ["html", "png"] * 10


async def test_health_follows_the_session(module):
    app = module.create_app()
    async with serving(app) as client:
        health = await client.get("/health")
        assert (health.status_code, health.json()["ready"]) == (200, True)
        await app.state.session.aclose()
        assert (await client.get("/health")).status_code == 503
        assert (await client.post("/type", content=HTML)).status_code == 503


async def test_a_full_queue_is_503_with_a_time_to_come_back(module):
    async with serving(module.create_app(max_waiting=1, depth=1)) as client:
        answers = await asyncio.gather(*(client.post("/type", content=PAGE) for _ in range(40)))
        refused = [answer for answer in answers if answer.status_code == 503]
        assert {answer.status_code for answer in answers} == {200, 503}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert (await client.post("/type", content=PAGE)).json()["type"] == "png"


@pytest.mark.parametrize(
    "inputs, said",
    [
        ({"bytes": [[1, 2, 3]]}, "2048"),
        ({"octets": [[1, 2, 3]]}, "octets"),
        ({"bytes": [[1], [2, 3]]}, "no arrays"),
        ({"bytes": "text"}, "no arrays"),
        ({"bytes": [[2**40] * 2048]}, "no arrays"),
        ({}, "bytes"),
    ],
)
async def test_tensors_that_do_not_fit_are_422_and_say_why(module, inputs, said):
    async with serving(module.create_app()) as client:
        answer = await client.post("/infer", json={"inputs": inputs})
        assert answer.status_code == 422
        assert said in answer.json()["detail"]


async def test_tensors_go_in_and_come_out_by_name(module):
    async with serving(module.create_app()) as client:
        answer = await client.post("/infer", json={"inputs": {"bytes": module.file_features(PAGE).tolist()}})
    scores = answer.json()["outputs"]["target_label"][0]
    assert module.file_labels()[scores.index(max(scores))] == "png"


async def test_an_empty_body_and_a_huge_one_are_refused(module, monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 1000)
    async with serving(module.create_app()) as client:
        assert (await client.post("/type", content=b"")).status_code == 422
        assert (await client.post("/type", content=b"x" * 1001)).status_code == 413


async def test_a_client_that_goes_away_takes_its_request_with_it(module):
    app = module.create_app(depth=1)
    async with serving(app) as client:
        others = [asyncio.ensure_future(client.post("/type", content=HTML)) for _ in range(40)]
        await asyncio.sleep(0.02)
        messages = [{"type": "http.request", "body": PAGE, "more_body": False}, {"type": "http.disconnect"}]
        sent = []

        async def receive():
            return messages.pop(0)

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/type",
            "raw_path": b"/type",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [],
            "client": ("test", 1),
            "server": ("test", 80),
        }
        await app(scope, receive, send)
        assert sent[0]["status"] == 499
        assert not all(other.done() for other in others)
        answers = await asyncio.gather(*others)
        assert [answer.json()["type"] for answer in answers] == ["html"] * 40


async def test_a_real_server_answers_survives_a_rude_client_and_stops_cleanly(module, environment):
    server = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / "fastapi_app.py"), "--port", "0", env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert server.stderr is not None
    log = ""
    try:
        while not (port := re.search(r"running on http://127\.0\.0\.1:(\d+)", log)):
            line = await asyncio.wait_for(server.stderr.readline(), 60)
            assert line, "the server ended:\n" + log
            log += line.decode()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port[1]}", timeout=60, trust_env=False) as client:
            _, writer = await asyncio.open_connection("127.0.0.1", int(port[1]))
            writer.write(b"POST /type HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            answers = await asyncio.gather(*(client.post("/type", content=body) for body in [HTML, PAGE] * 8))
            assert [answer.json()["type"] for answer in answers] == ["html", "png"] * 8
            assert json.loads((await client.get("/health")).content)["ready"] is True
        server.send_signal(signal.SIGINT)
        log += (await asyncio.wait_for(server.stderr.read(), 60)).decode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.kill()
        await server.wait()
    assert "Application shutdown complete" in log
    assert "Traceback" not in log
