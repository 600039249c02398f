from pagewire_protos.common.v1 import error_pb2 as _error_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemoryState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMORY_STATE_UNSPECIFIED: _ClassVar[MemoryState]
    MEMORY_STATE_AWAKE: _ClassVar[MemoryState]
    MEMORY_STATE_DRAINING: _ClassVar[MemoryState]
    MEMORY_STATE_ASLEEP: _ClassVar[MemoryState]
    MEMORY_STATE_WAKING: _ClassVar[MemoryState]

class MemoryTag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMORY_TAG_UNSPECIFIED: _ClassVar[MemoryTag]
    MEMORY_TAG_WEIGHTS: _ClassVar[MemoryTag]
    MEMORY_TAG_KV_CACHE: _ClassVar[MemoryTag]

class SleepMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SLEEP_MODE_UNSPECIFIED: _ClassVar[SleepMode]
    SLEEP_MODE_KEEP: _ClassVar[SleepMode]
    SLEEP_MODE_WAIT: _ClassVar[SleepMode]
MEMORY_STATE_UNSPECIFIED: MemoryState
MEMORY_STATE_AWAKE: MemoryState
MEMORY_STATE_DRAINING: MemoryState
MEMORY_STATE_ASLEEP: MemoryState
MEMORY_STATE_WAKING: MemoryState
MEMORY_TAG_UNSPECIFIED: MemoryTag
MEMORY_TAG_WEIGHTS: MemoryTag
MEMORY_TAG_KV_CACHE: MemoryTag
SLEEP_MODE_UNSPECIFIED: SleepMode
SLEEP_MODE_KEEP: SleepMode
SLEEP_MODE_WAIT: SleepMode

class WorkerSleep(_message.Message):
    __slots__ = ("state", "level", "awake", "num_bytes", "wakes_on_request", "error")
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    AWAKE_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAKES_ON_REQUEST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    state: MemoryState
    level: int
    awake: _containers.RepeatedScalarFieldContainer[MemoryTag]
    num_bytes: int
    wakes_on_request: bool
    error: _error_pb2.ErrorDetail
    def __init__(self, state: _Optional[_Union[MemoryState, str]] = ..., level: _Optional[int] = ..., awake: _Optional[_Iterable[_Union[MemoryTag, str]]] = ..., num_bytes: _Optional[int] = ..., wakes_on_request: bool = ..., error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...
