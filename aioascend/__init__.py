"""An asyncio-native inference runtime for Ascend NPUs: ``outputs = await session.infer(x)``.

Where there is no NPU the same code runs on an embedded emulator whose answers come from ONNX Runtime.
"""

from .depth import AutoDepth
from .devices import DeviceInfo, devices
from .errors import (
    AclError,
    AioascendError,
    BackendUnavailable,
    BlockingCallInLoop,
    DeadlineExceeded,
    DeviceLost,
    ExecutionFailed,
    ForkedProcess,
    InvalidInput,
    ModelLoadError,
    NoEventLoop,
    OutOfMemory,
    Overloaded,
    SessionClosed,
    StaleLease,
)
from .model import ModelFile, Outputs, TensorSpec, inspect
from .pinned import PinnedRequest
from .runtime.device import Device
from .runtime.memory import DeviceBuffer, PinnedBuffer
from .runtime.process import shutdown
from .runtime.stream import Event, Stream
from .runtime.tensors import DeviceOutputs, DeviceTensor
from .session import Session
from .telemetry.statistics import SessionStatistics
from .ticket import Ticket

__version__ = "0.1.0"

__all__ = [
    "AclError",
    "AioascendError",
    "AutoDepth",
    "BackendUnavailable",
    "BlockingCallInLoop",
    "DeadlineExceeded",
    "Device",
    "DeviceBuffer",
    "DeviceInfo",
    "DeviceLost",
    "DeviceOutputs",
    "DeviceTensor",
    "Event",
    "ExecutionFailed",
    "ForkedProcess",
    "InvalidInput",
    "ModelFile",
    "ModelLoadError",
    "NoEventLoop",
    "OutOfMemory",
    "Outputs",
    "Overloaded",
    "PinnedBuffer",
    "PinnedRequest",
    "Session",
    "SessionClosed",
    "SessionStatistics",
    "StaleLease",
    "Stream",
    "TensorSpec",
    "Ticket",
    "devices",
    "inspect",
    "shutdown",
]
