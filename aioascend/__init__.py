"""An asyncio-native inference runtime for Ascend NPUs: ``outputs = await session.infer(x)``.

Where there is no NPU the same code runs on an embedded emulator whose answers come from ONNX Runtime.
"""

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
    OutOfMemory,
    Overloaded,
    SessionClosed,
    StaleLease,
)
from .model import Outputs, TensorSpec
from .pinned import PinnedRequest
from .runtime.process import shutdown
from .session import Session
from .telemetry.statistics import SessionStatistics
from .ticket import Ticket

__version__ = "0.1.0"

__all__ = [
    "AclError",
    "AioascendError",
    "BackendUnavailable",
    "BlockingCallInLoop",
    "DeadlineExceeded",
    "DeviceInfo",
    "DeviceLost",
    "ExecutionFailed",
    "ForkedProcess",
    "InvalidInput",
    "ModelLoadError",
    "OutOfMemory",
    "Outputs",
    "Overloaded",
    "PinnedRequest",
    "Session",
    "SessionClosed",
    "SessionStatistics",
    "StaleLease",
    "TensorSpec",
    "Ticket",
    "devices",
    "shutdown",
]
