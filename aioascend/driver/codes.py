"""Error codes of ACL: symbolic name, meaning and class of each (pyACL reference §15), for messages and decisions.

Runtime (``RT_``) and graph executor (``GE_``) codes reach the caller unchanged through the ACL layer, so one table
serves all three. The classes are ours: they say what a caller can do about a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

# Codes that decide what happens next; all others are only described.
REPEAT_INITIALIZE: Final = 100002
THREAD_NOT_SUBSCRIBE: Final = 100035
WAIT_CALLBACK_TIMEOUT: Final = 100036
REPEAT_FINALIZE: Final = 100037
THREAD_SUBSCRIBE: Final = 107012
BAD_ALLOC: Final = 200000
FEATURE_NOT_SUPPORT: Final = 207000
NO_DEVICE: Final = 207004
FAILURE: Final = 500001
REPORT_TIMEOUT: Final = 507012
SOC_VERSION: Final = 507008
MODEL_EXECUTE: Final = 507011
STREAM_SYNC_TIMEOUT: Final = 507046
EVENT_SYNC_TIMEOUT: Final = 507047

LOST: Final = frozenset({507010, 507053, 507054, 507056, 507899, 507901})
"""The hardware or the way to it is gone; the other codes of the reference's fatal group leave a dead context behind."""


class ErrorClass(Enum):
    """What a code asks of the caller."""

    SUCCESS = "success"
    """Nothing: the call worked."""

    CALLER = "caller"
    """An argument, the order of calls, the model file or the installation is wrong; repeating does not help."""

    OVERLOAD = "overload"
    """Memory, streams, events or another resource ran out: it may work later or with less in flight."""

    DEVICE_LOST = "device_lost"
    """The device or its context cannot be trusted any more; it is rebuilt before anything else runs on it."""

    TIMEOUT = "timeout"
    """A wait ended before what it waited for; the device goes on."""

    INTERNAL = "internal"
    """A task, the runtime or the driver failed; other work on the device goes on."""


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """One code: ``name`` is its symbol in the vendor's headers, ``meaning`` a phrase to put behind a colon."""

    code: int
    name: str
    meaning: str
    error_class: ErrorClass
    known: bool = True


_CALLER = ErrorClass.CALLER
_OVERLOAD = ErrorClass.OVERLOAD
_LOST = ErrorClass.DEVICE_LOST
_TIMEOUT = ErrorClass.TIMEOUT
_INTERNAL = ErrorClass.INTERNAL

# Columns: code, name without the prefix ACL_ERROR_, class, meaning.
_TABLE: tuple[tuple[int, str, ErrorClass, str], ...] = (
    # ACL layer
    (100000, "INVALID_PARAM", _CALLER, "an argument is not valid"),
    (100001, "UNINITIALIZE", _CALLER, "ACL, dumping or profiling was used before it was initialised"),
    (100002, "REPEAT_INITIALIZE", _CALLER, "initialised or loaded a second time"),
    (100003, "INVALID_FILE", _CALLER, "the file is missing or cannot be read"),
    (100004, "WRITE_FILE", _CALLER, "a file could not be written"),
    (100005, "INVALID_FILE_SIZE", _CALLER, "the file has a wrong size"),
    (100006, "PARSE_FILE", _CALLER, "the configuration file cannot be parsed"),
    (100007, "FILE_MISSING_ATTR", _CALLER, "the configuration file lacks a key"),
    (100008, "FILE_ATTR_INVALID", _CALLER, "the configuration file has a key with a bad value"),
    (100009, "INVALID_DUMP_CONFIG", _CALLER, "the dump settings are not valid"),
    (100010, "INVALID_PROFILING_CONFIG", _CALLER, "the profiling settings are not valid"),
    (100011, "INVALID_MODEL_ID", _CALLER, "there is no model with this id"),
    (100012, "DESERIALIZE_MODEL", _CALLER, "the model cannot be decoded: damaged, or built for another version"),
    (100013, "PARSE_MODEL", _CALLER, "the model cannot be parsed: damaged, or no offline model at all"),
    (100014, "READ_MODEL_FAILURE", _CALLER, "the model file cannot be read"),
    (100015, "MODEL_SIZE_INVALID", _CALLER, "the model has a wrong size: often cut short"),
    (100016, "MODEL_MISSING_ATTR", _CALLER, "the model lacks an attribute it must have"),
    (100017, "MODEL_INPUT_NOT_MATCH", _CALLER, "the inputs given are not those of the model"),
    (100018, "MODEL_OUTPUT_NOT_MATCH", _CALLER, "the outputs given are not those of the model"),
    (100019, "MODEL_NOT_DYNAMIC", _CALLER, "a gear was set on a model of fixed shape"),
    (100020, "OP_TYPE_NOT_MATCH", _CALLER, "the operator has another type"),
    (100021, "OP_INPUT_NOT_MATCH", _CALLER, "the operator takes other inputs"),
    (100022, "OP_OUTPUT_NOT_MATCH", _CALLER, "the operator gives other outputs"),
    (100023, "OP_ATTR_NOT_MATCH", _CALLER, "the operator has other attributes"),
    (100024, "OP_NOT_FOUND", _CALLER, "there is no such operator"),
    (100025, "OP_LOAD_FAILED", _CALLER, "the operator could not be loaded"),
    (100026, "UNSUPPORTED_DATA_TYPE", _CALLER, "the data type is not supported"),
    (100027, "FORMAT_NOT_MATCH", _CALLER, "the tensor has another format"),
    (100028, "BIN_SELECTOR_NOT_REGISTERED", _CALLER, "no selector is registered for the operator's kernels"),
    (100029, "KERNEL_NOT_FOUND", _CALLER, "the operator has no such kernel"),
    (100030, "BIN_SELECTOR_ALREADY_REGISTERED", _CALLER, "the operator has a kernel selector already"),
    (100031, "KERNEL_ALREADY_REGISTERED", _CALLER, "the kernel is registered already"),
    (100032, "INVALID_QUEUE_ID", _CALLER, "there is no queue with this id"),
    (100033, "REPEAT_SUBSCRIBE", _CALLER, "the stream has a report thread already (older form of 107011)"),
    (100034, "STREAM_NOT_SUBSCRIBE", _CALLER, "the stream has no report thread (older form of 107015)"),
    (100035, "THREAD_NOT_SUBSCRIBE", _CALLER, "the thread serves no stream (older form of 107012)"),
    (100036, "WAIT_CALLBACK_TIMEOUT", _TIMEOUT, "no callback arrived in time (older form of 507012)"),
    (100037, "REPEAT_FINALIZE", _CALLER, "finalised a second time"),
    (100038, "NOT_STATIC_AIPP", _CALLER, "the input has no static AIPP (older form of 145015)"),
    (100039, "COMPILING_STUB_MODE", _CALLER, "the program runs on the toolkit's link-time stub libraries"),
    (100040, "GROUP_NOT_SET", _CALLER, "no group was set (older form of 107013)"),
    (100041, "GROUP_NOT_CREATE", _CALLER, "the group was not created (older form of 107014)"),
    (100042, "PROF_ALREADY_RUN", _CALLER, "profiling runs already"),
    (100043, "PROF_NOT_RUN", _CALLER, "profiling does not run"),
    (100044, "DUMP_ALREADY_RUN", _CALLER, "dumping runs already"),
    (100045, "DUMP_NOT_RUN", _CALLER, "dumping does not run"),
    (148046, "PROF_REPEAT_SUBSCRIBE", _CALLER, "profiling of this model is subscribed already"),
    (148047, "PROF_API_CONFLICT", _CALLER, "two ways of profiling were mixed"),
    (148048, "INVALID_MAX_OPQUEUE_NUM_CONFIG", _CALLER, "the operator cache has a bad size in the configuration"),
    (148049, "INVALID_OPP_PATH", _CALLER, "ASCEND_OPP_PATH leads nowhere: source the toolkit's set_env.sh"),
    (148050, "OP_UNSUPPORTED_DYNAMIC", _CALLER, "the operator cannot have a dynamic shape"),
    (148051, "RELATIVE_RESOURCE_NOT_CLEARED", _CALLER, "something that depends on it was not released first"),
    (148052, "UNSUPPORTED_JPEG", _CALLER, "the JPEG decoder cannot take this kind of picture"),
    (148053, "INVALID_BUNDLE_MODEL_ID", _CALLER, "there is no model bundle with this id"),
    (200000, "BAD_ALLOC", _OVERLOAD, "the host has no memory left"),
    (200001, "API_NOT_SUPPORT", _CALLER, "this product does not have the call"),
    (200002, "INVALID_DEVICE", _CALLER, "there is no such device (older form of 107001)"),
    (200003, "MEMORY_ADDRESS_UNALIGNED", _CALLER, "a memory address is not aligned as required"),
    (200004, "RESOURCE_NOT_MATCH", _CALLER, "a stream or context that belongs elsewhere was used"),
    (200005, "INVALID_RESOURCE_HANDLE", _CALLER, "a stream, context or other handle is destroyed or was never one"),
    (200006, "FEATURE_UNSUPPORTED", _CALLER, "this product does not have the feature"),
    (200007, "PROF_MODULES_UNSUPPORTED", _CALLER, "this part cannot be profiled here"),
    (300000, "STORAGE_OVER_LIMIT", _OVERLOAD, "the space allowed for storage is used up"),
    (500000, "INTERNAL_ERROR", _INTERNAL, "an unknown failure inside ACL"),
    (500001, "FAILURE", _INTERNAL, "a failure inside ACL"),
    (500002, "GE_FAILURE", _INTERNAL, "a failure inside the graph engine"),
    (500003, "RT_FAILURE", _INTERNAL, "a failure inside the runtime"),
    (500004, "DRV_FAILURE", _INTERNAL, "a failure inside the driver"),
    (500005, "PROFILING_FAILURE", _INTERNAL, "a failure inside the profiler"),
    # Runtime, the caller's side
    (107000, "RT_PARAM_INVALID", _CALLER, "an argument is not valid"),
    (107001, "RT_INVALID_DEVICEID", _CALLER, "there is no such device"),
    (107002, "RT_CONTEXT_NULL", _CALLER, "the thread has no context, or one that was destroyed"),
    (107003, "RT_STREAM_CONTEXT", _CALLER, "the stream or event belongs to another context"),
    (107004, "RT_MODEL_CONTEXT", _CALLER, "the model belongs to another context"),
    (107005, "RT_STREAM_MODEL", _CALLER, "the stream is not bound to the model"),
    (107006, "RT_EVENT_TIMESTAMP_INVALID", _CALLER, "an event has no time stamp yet: the device did not reach it"),
    (107007, "RT_EVENT_TIMESTAMP_REVERSAL", _CALLER, "the end event was recorded before the start event"),
    (107008, "RT_ADDR_UNALIGNED", _CALLER, "a memory address is not aligned as required"),
    (107009, "RT_FILE_OPEN", _CALLER, "a file cannot be opened"),
    (107010, "RT_FILE_WRITE", _CALLER, "a file cannot be written"),
    (107011, "RT_STREAM_SUBSCRIBE", _CALLER, "the stream has a report thread already, or has none"),
    (107012, "RT_THREAD_SUBSCRIBE", _CALLER, "the thread serves no stream, or one of another device"),
    (107013, "RT_GROUP_NOT_SET", _CALLER, "no group was set"),
    (107014, "RT_GROUP_NOT_CREATE", _CALLER, "the group was not created"),
    (107015, "RT_STREAM_NO_CB_REG", _CALLER, "a callback was launched on a stream without a report thread"),
    (107016, "RT_INVALID_MEMORY_TYPE", _CALLER, "the memory is of the wrong kind"),
    (107017, "RT_INVALID_HANDLE", _CALLER, "the handle is destroyed or was never one"),
    (107018, "RT_INVALID_MALLOC_TYPE", _CALLER, "there is no such kind of memory to allocate"),
    (107019, "RT_WAIT_TIMEOUT", _TIMEOUT, "a wait took longer than allowed"),
    (107020, "RT_TASK_TIMEOUT", _TIMEOUT, "a task took longer than allowed"),
    (107021, "RT_SYSPARAMOPT_NOT_SET", _CALLER, "the option is not set in this context"),
    (107022, "RT_DEVICE_TASK_ABORT", _CALLER, "the tasks of the device are being aborted"),
    (107023, "RT_STREAM_ABORT", _CALLER, "the stream is being aborted"),
    (107024, "RT_CAPTURE_DEPENDENCY", _CALLER, "graph capture: captured and other work depend on each other"),
    (107025, "RT_STREAM_UNJOINED", _CALLER, "graph capture: a forked stream was not joined again"),
    (107026, "RT_MODEL_CAPTURED", _CALLER, "graph capture: the model is being captured"),
    (107027, "RT_STREAM_CAPTURED", _CALLER, "graph capture: the stream is being captured"),
    (107028, "RT_EVENT_CAPTURED", _CALLER, "graph capture: the event is being captured"),
    (107029, "RT_STREAM_NOT_CAPTURED", _CALLER, "graph capture: the stream is not being captured"),
    (107030, "RT_CAPTURE_MODE_NOT_SUPPORT", _CALLER, "graph capture: the mode does not allow this call"),
    (107031, "RT_STREAM_CAPTURE_IMPLICIT", _CALLER, "graph capture: the default stream was used unasked"),
    (107032, "STREAM_CAPTURE_CONFLICT", _CALLER, "graph capture: two captures meet"),
    (107033, "STREAM_TASK_GROUP_STATUS", _CALLER, "graph capture: the task group is in the wrong state"),
    (107034, "STREAM_TASK_GROUP_INTR", _CALLER, "graph capture: the task group was interrupted"),
    (107035, "RT_TASK_ABORT_STOP", _CALLER, "the tasks of the device were aborted meanwhile"),
    (107036, "RT_STREAM_CAPTURE_UNMATCHED", _CALLER, "graph capture: begun and ended on different streams"),
    (107037, "RT_MODEL_RUNNING", _CALLER, "the model is running"),
    (107038, "RT_STREAM_CAPTURE_WRONG_THREAD", _CALLER, "graph capture: ended on another thread than begun"),
    (107039, "RT_INSUFFICIENT_INPUT_ARRAY", _CALLER, "an array given for results is too short"),
    (107040, "RT_MODEL_UPDATE_FAILED", _CALLER, "the model could not be updated"),
    (107041, "RT_CAPTURE_MODE_BLOCK_ASYNC", _CALLER, "graph capture: the mode forbids asynchronous work"),
    (107042, "RT_SYMBOL_NOT_FOUND", _CALLER, "there is no such symbol"),
    (107043, "RT_INVALID_SYMBOL", _CALLER, "the symbol is not valid"),
    (107044, "RT_INVALID_DEVICE_FUNCTION", _CALLER, "the device function is not valid"),
    (107045, "RT_SUB_ACLGRAPH_IS_CAPTURING", _CALLER, "graph capture: a graph inside this one is being captured"),
    # Runtime, resources and what a product cannot do
    (207000, "RT_FEATURE_NOT_SUPPORT", _CALLER, "this product, or this flavour of object, cannot do it"),
    (207001, "RT_MEMORY_ALLOCATION", _OVERLOAD, "out of memory: no room for the allocation"),
    (207002, "RT_MEMORY_FREE", _INTERNAL, "memory could not be freed"),
    (207003, "RT_AICORE_OVER_FLOW", _INTERNAL, "an AI core computed a number out of range"),
    (207004, "RT_NO_DEVICE", _CALLER, "no usable device"),
    (207005, "RT_RESOURCE_ALLOC_FAIL", _OVERLOAD, "the device has no such resource left, streams among them"),
    (207006, "RT_NO_PERMISSION", _CALLER, "the operating system does not permit it"),
    (207007, "RT_NO_EVENT_RESOURCE", _OVERLOAD, "the device has no event left"),
    (207008, "RT_NO_STREAM_RESOURCE", _OVERLOAD, "the device has no stream left"),
    (207009, "RT_NO_NOTIFY_RESOURCE", _OVERLOAD, "the device has no notification left"),
    (207010, "RT_NO_MODEL_RESOURCE", _OVERLOAD, "the device has no room for another model"),
    (207011, "RT_NO_CDQ_RESOURCE", _OVERLOAD, "the device has no command queue left"),
    (207012, "RT_OVER_LIMIT", _OVERLOAD, "a limit of the device is exceeded"),
    (207013, "RT_QUEUE_EMPTY", _CALLER, "the queue is empty"),
    (207014, "RT_QUEUE_FULL", _OVERLOAD, "the queue is full"),
    (207015, "RT_REPEATED_INIT", _CALLER, "initialised a second time"),
    (207016, "RT_AIVEC_OVER_FLOW", _INTERNAL, "a vector core computed a number out of range"),
    (207017, "RT_OVER_FLOW", _INTERNAL, "a number out of range was computed"),
    (207018, "RT_DEVICE_OOM", _OVERLOAD, "the device ran out of memory while it executed"),
    (207019, "RT_FEATURE_NOT_SUPPORT_UPDATE_OP", _CALLER, "the installed driver cannot update this operator"),
    (207020, "RT_TIMEOUT", _TIMEOUT, "the driver did not answer in time"),
    (207021, "RT_LINK_TYPE_NOT_SUPPORTED", _CALLER, "the link between the devices is of an unsupported kind"),
    # Runtime, internal and device
    (507000, "RT_INTERNAL_ERROR", _INTERNAL, "a failure inside the runtime, or an event that was never recorded"),
    (507001, "RT_TS_ERROR", _INTERNAL, "a failure inside the device's task scheduler"),
    (507002, "RT_STREAM_TASK_FULL", _INTERNAL, "the stream holds as many tasks as it can"),
    (507003, "RT_STREAM_TASK_EMPTY", _INTERNAL, "the stream holds no task"),
    (507004, "RT_STREAM_NOT_COMPLETE", _INTERNAL, "the stream has unfinished work"),
    (507005, "RT_END_OF_SEQUENCE", _INTERNAL, "the model reported the end of its data"),
    (507006, "RT_EVENT_NOT_COMPLETE", _INTERNAL, "the device has not reached the event"),
    (507007, "RT_CONTEXT_RELEASE_ERROR", _INTERNAL, "the context is being released already"),
    (507008, "RT_SOC_VERSION", _INTERNAL, "built for another chip than this one"),
    (507009, "RT_TASK_TYPE_NOT_SUPPORT", _INTERNAL, "the device does not know this kind of task"),
    (507010, "RT_LOST_HEARTBEAT", _LOST, "the device's firmware no longer answers"),
    (507011, "RT_MODEL_EXECUTE", _INTERNAL, "the model failed on the device"),
    (507012, "RT_REPORT_TIMEOUT", _TIMEOUT, "no callback arrived in time, as when nothing runs"),
    (507013, "RT_SYS_DMA", _INTERNAL, "a copy between host and device failed"),
    (507014, "RT_AICORE_TIMEOUT", _LOST, "a kernel hangs on an AI core"),
    (507015, "RT_AICORE_EXCEPTION", _LOST, "a kernel faulted on an AI core"),
    (507016, "RT_AICORE_TRAP_EXCEPTION", _LOST, "a kernel was trapped on an AI core"),
    (507017, "RT_AICPU_TIMEOUT", _LOST, "a kernel hangs on an AI CPU"),
    (507018, "RT_AICPU_EXCEPTION", _LOST, "a kernel faulted on an AI CPU"),
    (507019, "RT_AICPU_DATADUMP_RSP_ERR", _INTERNAL, "an AI CPU failed to dump data"),
    (507020, "RT_AICPU_MODEL_RSP_ERR", _INTERNAL, "an AI CPU failed in a model operation"),
    (507021, "RT_PROFILING_ERROR", _INTERNAL, "profiling failed"),
    (507022, "RT_IPC_ERROR", _INTERNAL, "communication between processes failed"),
    (507023, "RT_MODEL_ABORT_NORMAL", _INTERNAL, "the model stopped because it was asked to"),
    (507024, "RT_KERNEL_UNREGISTERING", _INTERNAL, "the kernel is being unregistered"),
    (507025, "RT_RINGBUFFER_NOT_INIT", _INTERNAL, "the device's message buffer is not set up"),
    (507026, "RT_RINGBUFFER_NO_DATA", _INTERNAL, "the device's message buffer is empty"),
    (507027, "RT_KERNEL_LOOKUP", _INTERNAL, "the kernel is not registered"),
    (507028, "RT_KERNEL_DUPLICATE", _INTERNAL, "the kernel is registered twice"),
    (507029, "RT_DEBUG_REGISTER_FAIL", _INTERNAL, "debugging could not be switched on"),
    (507030, "RT_DEBUG_UNREGISTER_FAIL", _INTERNAL, "debugging could not be switched off"),
    (507031, "RT_LABEL_CONTEXT", _INTERNAL, "the label belongs to another context"),
    (507032, "RT_PROGRAM_USE_OUT", _INTERNAL, "too many kernel programs are registered"),
    (507033, "RT_DEV_SETUP_ERROR", _LOST, "the device did not start: often in use, or a driver that does not fit"),
    (507034, "RT_VECTOR_CORE_TIMEOUT", _LOST, "a kernel hangs on a vector core"),
    (507035, "RT_VECTOR_CORE_EXCEPTION", _LOST, "a kernel faulted on a vector core"),
    (507036, "RT_VECTOR_CORE_TRAP_EXCEPTION", _LOST, "a kernel was trapped on a vector core"),
    (507037, "RT_CDQ_BATCH_ABNORMAL", _INTERNAL, "a batch of a command queue is in a wrong state"),
    (507038, "RT_DIE_MODE_CHANGE_ERROR", _INTERNAL, "the mode of the chip's dies cannot change now"),
    (507039, "RT_DIE_SET_ERROR", _INTERNAL, "a die could not be selected"),
    (507040, "RT_INVALID_DIEID", _INTERNAL, "there is no such die"),
    (507041, "RT_DIE_MODE_NOT_SET", _INTERNAL, "no die mode was set"),
    (507042, "RT_AICORE_TRAP_READ_OVERFLOW", _LOST, "a kernel on an AI core read out of range"),
    (507043, "RT_AICORE_TRAP_WRITE_OVERFLOW", _LOST, "a kernel on an AI core wrote out of range"),
    (507044, "RT_VECTOR_CORE_TRAP_READ_OVERFLOW", _LOST, "a kernel on a vector core read out of range"),
    (507045, "RT_VECTOR_CORE_TRAP_WRITE_OVERFLOW", _LOST, "a kernel on a vector core wrote out of range"),
    (507046, "RT_STREAM_SYNC_TIMEOUT", _TIMEOUT, "the stream or device did not finish within the time given"),
    (507047, "RT_EVENT_SYNC_TIMEOUT", _TIMEOUT, "the event was not reached within the time given"),
    (507048, "RT_FFTS_PLUS_TIMEOUT", _LOST, "a task of the hardware scheduler (FFTS+) hangs"),
    (507049, "RT_FFTS_PLUS_EXCEPTION", _LOST, "a task of the hardware scheduler (FFTS+) faulted"),
    (507050, "RT_FFTS_PLUS_TRAP_EXCEPTION", _LOST, "a task of the hardware scheduler (FFTS+) was trapped"),
    (507051, "RT_SEND_MSG", _LOST, "a message to the device could not be sent"),
    (507052, "RT_COPY_DATA", _LOST, "data could not be moved between host and device"),
    (507053, "RT_DEVICE_MEM_ERROR", _LOST, "the device's memory is faulty"),
    (507054, "RT_HBM_MULTI_BIT_ECC_ERROR", _LOST, "the device's memory has an error that cannot be corrected"),
    (507055, "RT_SUSPECT_DEVICE_MEM_ERROR", _INTERNAL, "the device's memory may be faulty"),
    (507056, "RT_LINK_ERROR", _LOST, "the link to the device is faulty"),
    (507057, "RT_SUSPECT_REMOTE_ERROR", _INTERNAL, "another device may be faulty"),
    (507899, "RT_DRV_INTERNAL_ERROR", _LOST, "a failure inside the driver"),
    (507900, "RT_AICPU_INTERNAL_ERROR", _LOST, "a failure inside an AI CPU"),
    (507901, "RT_SOCKET_CLOSE", _LOST, "the channel to the device was closed"),
    (507902, "RT_AICPU_INFO_LOAD_RSP_ERR", _INTERNAL, "an AI CPU could not load its description of the task"),
    (507903, "RT_STREAM_CAPTURE_INVALIDATED", _INTERNAL, "graph capture: what was captured is no longer valid"),
    (507904, "RT_COMM_OP_RETRY_FAIL", _INTERNAL, "a collective operation failed again when repeated"),
    (507905, "SNAPSHOT_LOCK_TIMEOUT", _INTERNAL, "process snapshot: the process was not locked in time"),
    (507906, "SNAPSHOT_LOCK_FAILED", _INTERNAL, "process snapshot: the process could not be locked"),
    (507907, "SNAPSHOT_UNLOCK_FAILED", _INTERNAL, "process snapshot: the process could not be unlocked"),
    (507908, "SNAPSHOT_BACKUP_FAILED", _INTERNAL, "process snapshot: saving failed"),
    (507909, "SNAPSHOT_RESTORE_FAILED", _INTERNAL, "process snapshot: restoring failed"),
    (507910, "HOST_MEMORY_ALREADY_REGISTERED", _INTERNAL, "the host memory is registered already"),
    (507911, "HOST_MEMORY_NOT_REGISTERED", _INTERNAL, "the host memory is not registered"),
    (507912, "SNAPSHOT_CALLBACK_FAILED", _INTERNAL, "process snapshot: a callback failed"),
    (507913, "SNAPSHOT_REGISTER_CALLBACK_FAILED", _INTERNAL, "process snapshot: a callback was not registered"),
    (507914, "RT_L3_PORT_ERROR", _INTERNAL, "a network port of the device is faulty"),
    (507915, "RT_CCU_TIMEOUT", _INTERNAL, "a task of the collective communication unit hangs"),
    (507916, "RT_CCU_EXCEPTION", _INTERNAL, "a task of the collective communication unit faulted"),
    # Graph and model executor
    (145000, "GE_PARAM_INVALID", _CALLER, "an argument is not valid"),
    (145001, "GE_EXEC_NOT_INIT", _CALLER, "the model executor is not initialised"),
    (145002, "GE_EXEC_MODEL_PATH_INVALID", _CALLER, "the path leads to no model"),
    (145003, "GE_EXEC_MODEL_ID_INVALID", _CALLER, "there is no model with this id"),
    (145006, "GE_EXEC_MODEL_DATA_SIZE_INVALID", _CALLER, "the model has a wrong size: often cut short"),
    (145007, "GE_EXEC_MODEL_ADDR_INVALID", _CALLER, "the address of the model is not valid"),
    (145008, "GE_EXEC_MODEL_QUEUE_ID_INVALID", _CALLER, "the model has no queue with this id"),
    (145009, "GE_EXEC_LOAD_MODEL_REPEATED", _CALLER, "the model is loaded already"),
    (145011, "GE_DYNAMIC_INPUT_ADDR_INVALID", _CALLER, "the input that takes the gear has no buffer"),
    (145012, "GE_DYNAMIC_INPUT_LENGTH_INVALID", _CALLER, "the input that takes the gear has too short a buffer"),
    (145013, "GE_DYNAMIC_BATCH_SIZE_INVALID", _CALLER, "the model was not compiled for this gear"),
    (145014, "GE_AIPP_BATCH_EMPTY", _CALLER, "the AIPP settings have no batch"),
    (145015, "GE_AIPP_NOT_EXIST", _CALLER, "the input has no AIPP"),
    (145016, "GE_AIPP_MODE_INVALID", _CALLER, "the AIPP of the input is of another mode"),
    (145017, "GE_OP_TASK_TYPE_INVALID", _CALLER, "the operator's task is of an unknown kind"),
    (145018, "GE_OP_KERNEL_TYPE_INVALID", _CALLER, "the operator's kernel is of an unknown kind"),
    (145019, "GE_PLGMGR_PATH_INVALID", _CALLER, "the path of the plug-ins leads nowhere"),
    (145020, "GE_FORMAT_INVALID", _CALLER, "the tensor format is not valid"),
    (145021, "GE_SHAPE_INVALID", _CALLER, "the tensor shape is not valid"),
    (145022, "GE_DATATYPE_INVALID", _CALLER, "the tensor data type is not valid"),
    (245000, "GE_MEMORY_ALLOCATION", _OVERLOAD, "the model executor got no memory"),
    (245001, "GE_MEMORY_OPERATE_FAILED", _INTERNAL, "the model executor could not set or copy memory"),
    (245002, "GE_DEVICE_MEMORY_OPERATE_FAILED", _OVERLOAD, "the model executor got no device memory"),
    (345102, "GE_SUBHEALTHY", _INTERNAL, "a part of the data flow is not healthy"),
    (345103, "GE_USER_RAISE_EXCEPTION", _INTERNAL, "a user's function in the data flow failed"),
    (345104, "GE_DATA_NOT_ALIGNED", _CALLER, "the inputs of the data flow do not belong together"),
    (545000, "GE_INTERNAL_ERROR", _INTERNAL, "a failure inside the model executor"),
    (545001, "GE_LOAD_MODEL", _INTERNAL, "the model could not be loaded"),
    (545002, "GE_EXEC_LOAD_MODEL_PARTITION_FAILED", _INTERNAL, "the model is damaged or built for another version"),
    (545003, "GE_EXEC_LOAD_WEIGHT_PARTITION_FAILED", _INTERNAL, "the model's weights are damaged or do not fit it"),
    (545004, "GE_EXEC_LOAD_TASK_PARTITION_FAILED", _INTERNAL, "the model's tasks are damaged or for another chip"),
    (545005, "GE_EXEC_LOAD_KERNEL_PARTITION_FAILED", _INTERNAL, "the model's kernels are damaged or for another chip"),
    (545006, "GE_EXEC_RELEASE_MODEL_DATA", _INTERNAL, "the model's data could not be released"),
    (545007, "GE_EXEC_COMMAND_HANDLE", _INTERNAL, "a command to the model executor failed"),
    (545008, "GE_EXEC_GET_TENSOR_INFO", _INTERNAL, "the model does not tell what its tensors are"),
    (545009, "GE_EXEC_UNLOAD_MODEL", _INTERNAL, "the model could not be unloaded"),
    (545601, "GE_MODEL_EXECUTE_TIMEOUT", _TIMEOUT, "the model took longer than allowed"),
    (545602, "GE_REDEPLOYING", _INTERNAL, "the model is being deployed anew"),
)

CODES: dict[int, CodeInfo] = {
    code: CodeInfo(code, f"ACL_ERROR_{name}", meaning, error_class) for code, name, error_class, meaning in _TABLE
}
"""Every code of the reference by number, 0 not among them."""

# By the first of six digits: what an unlisted code at least tells.
_BY_DIGIT: dict[int, tuple[ErrorClass, str]] = {
    1: (_CALLER, "a mistake of the caller or of the installation"),
    2: (_OVERLOAD, "a resource ran out, or the product cannot do it"),
    3: (_INTERNAL, "a queue, storage or data flow is in the wrong state"),
    5: (_INTERNAL, "a failure inside the runtime or of the device"),
}


def describe(code: int) -> CodeInfo:
    """Describe the ``ret`` of a call; a code outside the table is told by its class digit, with ``known`` false."""
    info = CODES.get(code)
    if info is not None:
        return info
    if code == 0:
        return CodeInfo(0, "ACL_SUCCESS", "success", ErrorClass.SUCCESS)
    error_class, meaning = _BY_DIGIT.get(code // 100_000, (_INTERNAL, "not a code of any known class"))
    return CodeInfo(code, "unlisted code", meaning, error_class, known=False)
