from pagewire_protos.common.v1 import error_pb2 as _error_pb2
from pagewire_protos.common.v1 import stacks_pb2 as _stacks_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerQuery(_message.Message):
    __slots__ = ("start_profile", "read_profile", "call", "stacks")
    START_PROFILE_FIELD_NUMBER: _ClassVar[int]
    READ_PROFILE_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    start_profile: StartWorkerProfile
    read_profile: ReadWorkerProfile
    call: CallWorkerExtension
    stacks: WorkerStacksQuery
    def __init__(self, start_profile: _Optional[_Union[StartWorkerProfile, _Mapping]] = ..., read_profile: _Optional[_Union[ReadWorkerProfile, _Mapping]] = ..., call: _Optional[_Union[CallWorkerExtension, _Mapping]] = ..., stacks: _Optional[_Union[WorkerStacksQuery, _Mapping]] = ...) -> None: ...

class WorkerAnswer(_message.Message):
    __slots__ = ("error", "profile_started", "profile_part", "results", "stacks")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PROFILE_STARTED_FIELD_NUMBER: _ClassVar[int]
    PROFILE_PART_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    error: _error_pb2.ErrorDetail
    profile_started: WorkerProfileStarted
    profile_part: WorkerProfilePart
    results: WorkerExtensionResults
    stacks: WorkerProcessStacks
    def __init__(self, error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ..., profile_started: _Optional[_Union[WorkerProfileStarted, _Mapping]] = ..., profile_part: _Optional[_Union[WorkerProfilePart, _Mapping]] = ..., results: _Optional[_Union[WorkerExtensionResults, _Mapping]] = ..., stacks: _Optional[_Union[WorkerProcessStacks, _Mapping]] = ...) -> None: ...

class StartWorkerProfile(_message.Message):
    __slots__ = ("num_steps", "timeout_ms")
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    num_steps: int
    timeout_ms: int
    def __init__(self, num_steps: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class WorkerProfileStarted(_message.Message):
    __slots__ = ("profile_id",)
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    profile_id: int
    def __init__(self, profile_id: _Optional[int] = ...) -> None: ...

class ReadWorkerProfile(_message.Message):
    __slots__ = ("profile_id", "offset", "ends_profile", "is_dropped")
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENDS_PROFILE_FIELD_NUMBER: _ClassVar[int]
    IS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    profile_id: int
    offset: int
    ends_profile: bool
    is_dropped: bool
    def __init__(self, profile_id: _Optional[int] = ..., offset: _Optional[int] = ..., ends_profile: bool = ..., is_dropped: bool = ...) -> None: ...

class WorkerProfilePart(_message.Message):
    __slots__ = ("profile_id", "is_pending", "num_bytes", "data")
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_PENDING_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    profile_id: int
    is_pending: bool
    num_bytes: int
    data: bytes
    def __init__(self, profile_id: _Optional[int] = ..., is_pending: bool = ..., num_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class CallWorkerExtension(_message.Message):
    __slots__ = ("method", "args_json", "kwargs_json", "timeout_ms", "unique_reply_rank")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_REPLY_RANK_FIELD_NUMBER: _ClassVar[int]
    method: str
    args_json: str
    kwargs_json: str
    timeout_ms: int
    unique_reply_rank: int
    def __init__(self, method: _Optional[str] = ..., args_json: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., unique_reply_rank: _Optional[int] = ...) -> None: ...

class WorkerExtensionResults(_message.Message):
    __slots__ = ("results_json",)
    RESULTS_JSON_FIELD_NUMBER: _ClassVar[int]
    results_json: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, results_json: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkerStacksQuery(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkerProcessStacks(_message.Message):
    __slots__ = ("processes",)
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    processes: _containers.RepeatedCompositeFieldContainer[_stacks_pb2.ProcessStacks]
    def __init__(self, processes: _Optional[_Iterable[_Union[_stacks_pb2.ProcessStacks, _Mapping]]] = ...) -> None: ...
