"""Numbers that pyACL calls take and return.

The ``acl`` module exports functions only (pyACL reference §1, §14), so every program defines the numbers it needs.
Members carry the vendor's names without the common prefix, which each docstring gives. They are ints and may be passed
to pyACL as they are.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from functools import lru_cache
from typing import Any

import numpy as np

SUCCESS = 0
"""The ``ret`` of a call that worked; every other value is an error code (see :mod:`aioascend.driver.codes`)."""

DEFAULT_STREAM = 0
"""The default stream of the current context, as a handle. ``None`` is a ``TypeError`` there (pyACL reference §1)."""

MAX_TENSOR_DIMS = 128
"""Most dimensions a tensor may have."""

MAX_TENSOR_NAME_BYTES = 127
"""Longest tensor name in bytes; a longer one is described under a synthetic name (pyACL reference §11)."""

MAX_BATCH_GEARS = 128
"""Most batch sizes an offline model may be compiled for."""

MAX_SIZE_GEARS = 128
"""Most image sizes (height, width) an offline model may be compiled for."""

DYNAMIC_TENSOR_NAME = "ascend_mbatch_shape_data"
"""Name of the extra input through which a model with gears learns the gear of a run (pyACL reference §11)."""

DYNAMIC_AIPP_NAME = "ascend_dynamic_aipp_data"
"""Name of the extra input of a model with dynamic AIPP (pyACL reference §11)."""


class MallocPolicy(IntEnum):
    """Page kind of a device allocation, ``ACL_MEM_MALLOC_*``. One member a call, never OR-ed (pyACL reference §8)."""

    HUGE_FIRST = 0
    HUGE_ONLY = 1
    NORMAL_ONLY = 2
    HUGE_FIRST_P2P = 3
    HUGE_ONLY_P2P = 4
    NORMAL_ONLY_P2P = 5
    HUGE1G_ONLY = 6
    HUGE1G_ONLY_P2P = 7
    TYPE_LOW_BAND_WIDTH = 0x100
    TYPE_HIGH_BAND_WIDTH = 0x1000
    ACCESS_USER_SPACE_READONLY = 0x100000


class MemcpyKind(IntEnum):
    """Direction of a copy, ``ACL_MEMCPY_*``. ``DEFAULT`` and those after it came with CANN 8."""

    HOST_TO_HOST = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    DEFAULT = 4
    HOST_TO_BUF_TO_DEVICE = 5
    INNER_DEVICE_TO_DEVICE = 6
    INTER_DEVICE_TO_DEVICE = 7


class MemoryAttr(IntEnum):
    """Memory that ``get_mem_info`` is asked about, ``ACL_*_MEM``: HBM on 910-class parts, DDR on 310-class ones."""

    DDR = 0
    HBM = 1
    DDR_HUGE = 2
    DDR_NORMAL = 3
    HBM_HUGE = 4
    HBM_NORMAL = 5
    DDR_P2P_HUGE = 6
    DDR_P2P_NORMAL = 7
    HBM_P2P_HUGE = 8
    HBM_P2P_NORMAL = 9
    HBM_HUGE1G = 10
    HBM_P2P_HUGE1G = 11


class RunMode(IntEnum):
    """Where the process runs, ``ACL_DEVICE`` / ``ACL_HOST``: on the board itself or on a PCIe host."""

    DEVICE = 0
    HOST = 1


class EventFlag(IntFlag):
    """What an event can do, ``ACL_EVENT_*``; members may be OR-ed. No flag at all is refused with 107000."""

    SYNC = 0x1
    CAPTURE_STREAM_PROGRESS = 0x2
    TIME_LINE = 0x8
    DEVICE_USE_ONLY = 0x10
    EXTERNAL = 0x20
    IPC = 0x40


class EventRecordedStatus(IntEnum):
    """Answer of ``query_event_status``. Here *one* means complete, as in no other status (pyACL reference §1)."""

    NOT_READY = 0
    COMPLETE = 1


class EventWaitStatus(IntEnum):
    """Answer of ``query_event_wait_status``."""

    COMPLETE = 0
    NOT_READY = 1
    RESERVED = 0xFFFF


class EventStatus(IntEnum):
    """Answer of the deprecated ``query_event``."""

    COMPLETE = 0
    NOT_READY = 1
    RESERVED = 2


class StreamStatus(IntEnum):
    """Answer of ``stream_query``."""

    COMPLETE = 0
    NOT_READY = 1
    RESERVED = 0xFFFF


class DeviceStatus(IntEnum):
    """Answer of ``query_device_status``."""

    NORMAL = 0
    ABNORMAL = 1


class CallbackBlockType(IntEnum):
    """Whether a stream goes on while its callback runs, ``ACL_CALLBACK_*`` (pyACL reference §9)."""

    NO_BLOCK = 0
    BLOCK = 1


class FailureMode(IntEnum):
    """What a stream does after a failed task, set with ``set_stream_failure_mode``. ``CONTINUE`` is the default."""

    CONTINUE = 0
    STOP = 1


class StreamFlag(IntFlag):
    """How a stream is set up, ``ACL_STREAM_*``; unknown values behave like no flag (pyACL reference §14)."""

    FAST_LAUNCH = 0x1
    FAST_SYNC = 0x2
    PERSISTENT = 0x4
    HUGE = 0x8
    CPU_SCHEDULE = 0x10
    DEVICE_USE_ONLY = 0x20


class TaskSchedulerId(IntEnum):
    """Task scheduler that ``set_ts_device`` selects, ``ACL_TS_ID_*``."""

    AICORE = 0
    AIVECTOR = 1


class OverflowMode(IntEnum):
    """What a floating-point overflow becomes on the device: the largest finite number, or infinity and NaN."""

    SATURATION = 0
    INFNAN = 1


class HostRegisterType(IntEnum):
    """Second number of ``host_register`` (``MAPPED``) and of ``host_register_v2`` (``MAPPED_V2``, a flag)."""

    MAPPED = 0
    MAPPED_V2 = 0x2


class DataType(IntEnum):
    """Element type of a tensor, ``ACL_*`` (``aclDataType``). :func:`numpy_dtype` and :func:`data_type` translate."""

    UNDEFINED = -1
    FLOAT = 0
    FLOAT16 = 1
    INT8 = 2
    INT32 = 3
    UINT8 = 4
    INT16 = 6
    UINT16 = 7
    UINT32 = 8
    INT64 = 9
    UINT64 = 10
    DOUBLE = 11
    BOOL = 12
    STRING = 13
    COMPLEX64 = 16
    COMPLEX128 = 17
    BF16 = 27
    INT4 = 29
    UINT1 = 30
    COMPLEX32 = 33
    HIFLOAT8 = 34
    FLOAT8_E5M2 = 35
    FLOAT8_E4M3FN = 36
    FLOAT8_E8M0 = 37
    FLOAT6_E3M2 = 38
    FLOAT6_E2M3 = 39
    FLOAT4_E2M1 = 40
    FLOAT4_E1M2 = 41


class Format(IntEnum):
    """Memory layout of a tensor, ``ACL_FORMAT_*`` (``aclFormat``)."""

    UNDEFINED = -1
    NCHW = 0
    NHWC = 1
    ND = 2
    NC1HWC0 = 3
    FRACTAL_Z = 4
    NC1HWC0_C04 = 12
    HWCN = 16
    NDHWC = 27
    FRACTAL_NZ = 29
    NCDHW = 30
    NDC1HWC0 = 32
    FRACTAL_Z_3D = 33
    NC = 35
    NCL = 47
    FRACTAL_NZ_C0_16 = 50
    FRACTAL_NZ_C0_32 = 51
    FRACTAL_NZ_C0_2 = 52
    FRACTAL_NZ_C0_4 = 53
    FRACTAL_NZ_C0_8 = 54


class ModelConfigAttr(IntEnum):
    """Attribute of a model-load configuration, for ``set_config_opt`` (pyACL reference §11)."""

    PRIORITY = 0
    LOAD_TYPE = 1
    PATH = 2
    MEM_ADDR = 3
    MEM_SIZE = 4
    WEIGHT_ADDR = 5
    WEIGHT_SIZE = 6
    WORKSPACE_ADDR = 7
    WORKSPACE_SIZE = 8
    INPUTQ_NUM = 9
    INPUTQ_ADDR = 10
    OUTPUTQ_NUM = 11
    OUTPUTQ_ADDR = 12
    WORKSPACE_MEM_OPTIMIZE = 13
    WEIGHT_PATH = 14


class ModelLoadType(IntEnum):
    """Value of :attr:`ModelConfigAttr.LOAD_TYPE`: where the model is and who manages its memory."""

    FILE = 1
    FILE_WITH_MEM = 2
    MEM = 3
    MEM_WITH_MEM = 4
    FILE_WITH_Q = 5
    MEM_WITH_Q = 6


class ExecConfigAttr(IntEnum):
    """Attribute of an execution configuration, for ``set_exec_config_opt``; both values are milliseconds."""

    STREAM_SYNC_TIMEOUT = 0
    EVENT_SYNC_TIMEOUT = 1


class AippType(IntEnum):
    """How image preprocessing was built into a model input, from ``get_aipp_type``."""

    NONE = 0
    STATIC = 1
    DYNAMIC = 2
    DYNAMIC_NODE = 3


class AippPixelFormat(IntEnum):
    """Pixel layout that AIPP takes."""

    YUV420SP = 1
    XRGB8888 = 2
    RGB888 = 3
    YUV400 = 4
    ARGB8888 = 7
    YUYV = 8
    YUV422SP = 9
    AYUV444 = 10


class LogLevel(IntEnum):
    """Level of ``app_log``."""

    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


_NUMPY: dict[DataType, np.dtype[Any]] = {
    DataType.FLOAT: np.dtype(np.float32),
    DataType.FLOAT16: np.dtype(np.float16),
    DataType.INT8: np.dtype(np.int8),
    DataType.INT32: np.dtype(np.int32),
    DataType.UINT8: np.dtype(np.uint8),
    DataType.INT16: np.dtype(np.int16),
    DataType.UINT16: np.dtype(np.uint16),
    DataType.UINT32: np.dtype(np.uint32),
    DataType.INT64: np.dtype(np.int64),
    DataType.UINT64: np.dtype(np.uint64),
    DataType.DOUBLE: np.dtype(np.float64),
    DataType.BOOL: np.dtype(np.bool_),
    DataType.COMPLEX64: np.dtype(np.complex64),
    DataType.COMPLEX128: np.dtype(np.complex128),
}
_ACL: dict[np.dtype[Any], DataType] = {dtype: number for number, dtype in _NUMPY.items()}


@lru_cache(maxsize=1)
def _bfloat16() -> np.dtype[Any]:
    # An import that failed is not cached: installing the package in a running notebook is enough.
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def numpy_dtype(number: int) -> np.dtype[Any]:
    """Give the numpy dtype whose elements lie in memory as those of the ACL data type ``number``.

    Raises ``ValueError``, as one sentence to show, for a number outside :class:`DataType`, for a type without a numpy
    counterpart (strings, packed and vendor types), and for bfloat16 where ``ml_dtypes`` cannot be imported.
    """
    try:
        wanted = DataType(number)
    except ValueError:
        raise ValueError(f"{int(number)} is no ACL data type known here") from None
    if wanted is DataType.BF16:
        try:
            return _bfloat16()
        except ImportError as error:
            raise ValueError(f"bfloat16 tensors need the ml_dtypes package: pip install ml_dtypes ({error})") from error
    if wanted not in _NUMPY:
        raise ValueError(f"the ACL data type {wanted.name} ({wanted.value}) has no numpy counterpart")
    return _NUMPY[wanted]


def data_type(dtype: np.dtype[Any]) -> DataType:
    """Give the ACL data type of a numpy dtype; the inverse of :func:`numpy_dtype`.

    Raises ``ValueError`` for a dtype ACL has no number for, a foreign byte order among them.
    """
    found = _ACL.get(dtype)
    if found is not None:
        return found
    if dtype.name == "bfloat16":
        return DataType.BF16
    raise ValueError(f"numpy dtype {dtype.name if dtype.isnative else dtype.str} has no ACL data type")
