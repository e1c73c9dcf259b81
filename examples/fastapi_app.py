"""A web service around one session: what kind of file is it?

    python examples/fastapi_app.py --port 8000
    curl --data-binary @README.md http://127.0.0.1:8000/type

The lifespan opens and closes the session. A handler awaits `session.infer`; the loop stays free
for everyone else meanwhile. A full queue is an answer of its own (503 with Retry-After), and so
is an input that does not fit (422). A client that goes away takes its request with it.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import numpy as np
from _models import FILE_TYPE, file_features, file_labels, missing

import aioascend

try:
    import uvicorn
    from fastapi import Body, FastAPI, HTTPException, Request, Response
    from fastapi.responses import JSONResponse
except ImportError as error:
    raise missing(error) from None

T = TypeVar("T")
LARGEST = 16 * 1024 * 1024  # bytes of a file


class ClientGone(Exception):
    """The client closed its connection before the answer was there."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; when the client disconnects first, `work` is cancelled. The body must have been read."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


def create_app(**options: Any) -> FastAPI:
    """The application; `options` go to `aioascend.Session`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.labels = file_labels()
        async with aioascend.Session(FILE_TYPE.find(), shapes=FILE_TYPE.shapes, warmup=1, **options) as session:
            app.state.session = session
            yield

    app = FastAPI(title="File types", lifespan=lifespan)

    @app.get("/health")
    async def health() -> Response:
        """200 while the session takes requests, else 503: what a load balancer asks."""
        session = app.state.session
        return JSONResponse({"ready": session.ready, "session": repr(session)}, 200 if session.ready else 503)

    @app.post("/type")
    async def file_type(request: Request) -> dict[str, str | float]:
        """The type of the file that is the request's body."""
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > LARGEST:
                raise HTTPException(413, f"the file has more than {LARGEST} bytes")
        if not content:
            raise HTTPException(422, "the body is empty; send a file")
        outputs = await while_connected(request, app.state.session.infer(file_features(bytes(content)), timeout=10))
        scores = outputs[0][0]
        best = int(scores.argmax())
        return {"type": app.state.labels[best], "probability": round(float(scores[best]), 4)}

    @app.post("/infer")
    async def infer(request: Request, inputs: dict[str, Any] = Body(embed=True)) -> dict[str, Any]:  # noqa: B008
        """The model itself: {"inputs": {name: nested list}} to {"outputs": {name: nested list}}."""
        dtypes = {spec.name: spec.dtype for spec in app.state.session.inputs}
        try:
            arrays = {name: np.asarray(values, dtypes.get(name)) for name, values in inputs.items()}
        except (ValueError, TypeError, OverflowError) as error:
            raise aioascend.InvalidInput(f"the inputs are no arrays: {error}") from None
        outputs = await while_connected(request, app.state.session.infer(arrays, timeout=10))
        return {"outputs": {name: outputs[name].tolist() for name in outputs.keys()}}  # noqa: SIM118

    def answer(status: int, error: Exception, **headers: str) -> Response:
        return JSONResponse({"detail": str(error)}, status, headers)

    @app.exception_handler(aioascend.InvalidInput)
    async def does_not_fit(_: Request, error: aioascend.InvalidInput) -> Response:
        return answer(422, error)

    @app.exception_handler(aioascend.Overloaded)
    async def overloaded(_: Request, error: aioascend.Overloaded) -> Response:
        return answer(503, error, **{"Retry-After": str(max(1, math.ceil(error.retry_after or 1)))})

    @app.exception_handler(aioascend.SessionClosed)
    async def closed(_: Request, error: aioascend.SessionClosed) -> Response:
        return answer(503, error)

    @app.exception_handler(aioascend.DeadlineExceeded)
    async def too_late(_: Request, error: aioascend.DeadlineExceeded) -> Response:
        return answer(504, error)

    @app.exception_handler(ClientGone)
    async def nobody_there(_: Request, error: ClientGone) -> Response:
        return answer(499, error)  # nobody reads it; 499 is how nginx logs the case

    return app


app = create_app()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--device", default="auto", help="npu:0, emulator:0 ... (default: an NPU when there is one)")
    parser.add_argument("--max-waiting", type=int, default=256, help="requests that may wait before 503 (default 256)")
    arguments = parser.parse_args()
    FILE_TYPE.find()  # one clear line now instead of a failed start-up later
    uvicorn.run(
        create_app(devices=arguments.device, max_waiting=arguments.max_waiting),
        host=arguments.host,
        port=arguments.port,
    )


if __name__ == "__main__":
    main()
