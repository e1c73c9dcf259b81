"""Ending the runs of one model before their time, for whoever closes it: pyACL has no call for that."""

from __future__ import annotations

from .process import Process

__all__ = ["end_runs"]


def end_runs(process: Process, model_id: int) -> None:
    """Let the run of a model that is under way fail at once, and every later one; of a model unknown, nothing."""
    model = process.models.get(model_id)
    if model is None or model.network is None:
        return
    model.network.terminate()
    engine = model.context.device.engine
    if engine is None:
        return
    with engine.lock:
        engine.model.hurry(model, model.context.device.all_streams(), engine.clock())
        engine.kick()
