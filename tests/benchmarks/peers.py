"""What else runs a small ONNX model from an event loop; each gives a coroutine function that runs it once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
import onnxruntime

__all__ = ["openvino_queue", "ort_run_async", "ort_session", "ort_to_thread"]

Call = Callable[[], Awaitable[object]]


def ort_session(path: str, threads: int = 1) -> Any:
    """A session that computes with so many threads (0: ONNX Runtime's choice)."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@contextlib.asynccontextmanager
async def ort_to_thread(path: str, x: np.ndarray) -> AsyncIterator[Call]:
    """`asyncio.to_thread(session.run)`."""
    session = ort_session(path)
    yield lambda: asyncio.to_thread(session.run, None, {"x": x})


@contextlib.asynccontextmanager
async def ort_run_async(path: str, x: np.ndarray) -> AsyncIterator[Call]:
    """`session.run_async`, bridged to a future. It refuses one thread, so that it has the machine's."""
    session = ort_session(path, 2)
    loop = asyncio.get_running_loop()

    def done(outputs: Any, future: asyncio.Future[Any], error: str) -> None:
        loop.call_soon_threadsafe(future.set_result, outputs if not error else None)

    def call() -> Awaitable[object]:
        future = loop.create_future()
        session.run_async(None, {"x": x}, done, future)
        return future

    yield call


@contextlib.asynccontextmanager
async def openvino_queue(path: str, x: np.ndarray) -> AsyncIterator[Call]:
    """OpenVINO's `AsyncInferQueue`, bridged to futures; a semaphore keeps `start_async` from blocking the loop."""
    import openvino

    compiled = openvino.Core().compile_model(path, "CPU", {"PERFORMANCE_HINT": "THROUGHPUT"})
    queue = openvino.AsyncInferQueue(compiled, 0)
    loop = asyncio.get_running_loop()
    free = asyncio.Semaphore(len(queue))

    def done(request: Any, future: asyncio.Future[Any]) -> None:
        loop.call_soon_threadsafe(future.set_result, request.get_output_tensor(0).data.copy())

    queue.set_callback(done)

    async def call() -> object:
        async with free:
            future = loop.create_future()
            queue.start_async({0: x}, future)
            return await future

    yield call
    queue.wait_all()
