from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProcessStacks(_message.Message):
    __slots__ = ("role", "name", "pid", "error", "threads", "tasks", "num_left_out")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NUM_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    role: str
    name: str
    pid: int
    error: str
    threads: _containers.RepeatedCompositeFieldContainer[ThreadStack]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStack]
    num_left_out: int
    def __init__(self, role: _Optional[str] = ..., name: _Optional[str] = ..., pid: _Optional[int] = ..., error: _Optional[str] = ..., threads: _Optional[_Iterable[_Union[ThreadStack, _Mapping]]] = ..., tasks: _Optional[_Iterable[_Union[TaskStack, _Mapping]]] = ..., num_left_out: _Optional[int] = ...) -> None: ...

class ThreadStack(_message.Message):
    __slots__ = ("name", "native_name", "native_id", "frames")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NATIVE_NAME_FIELD_NUMBER: _ClassVar[int]
    NATIVE_ID_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    name: str
    native_name: str
    native_id: int
    frames: _containers.RepeatedCompositeFieldContainer[StackFrame]
    def __init__(self, name: _Optional[str] = ..., native_name: _Optional[str] = ..., native_id: _Optional[int] = ..., frames: _Optional[_Iterable[_Union[StackFrame, _Mapping]]] = ...) -> None: ...

class TaskStack(_message.Message):
    __slots__ = ("name", "count", "frames")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    frames: _containers.RepeatedCompositeFieldContainer[StackFrame]
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., frames: _Optional[_Iterable[_Union[StackFrame, _Mapping]]] = ...) -> None: ...

class StackFrame(_message.Message):
    __slots__ = ("file", "line", "function")
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    function: str
    def __init__(self, file: _Optional[str] = ..., line: _Optional[int] = ..., function: _Optional[str] = ...) -> None: ...
