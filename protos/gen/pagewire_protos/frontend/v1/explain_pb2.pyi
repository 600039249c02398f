from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExplainRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: str
    def __init__(self, request: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("request_id", "label", "model", "seconds", "summary", "notes", "stages")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    label: str
    model: str
    seconds: float
    summary: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    stages: _containers.RepeatedCompositeFieldContainer[ExplainedStage]
    def __init__(self, request_id: _Optional[str] = ..., label: _Optional[str] = ..., model: _Optional[str] = ..., seconds: _Optional[float] = ..., summary: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ..., stages: _Optional[_Iterable[_Union[ExplainedStage, _Mapping]]] = ...) -> None: ...

class ExplainedStage(_message.Message):
    __slots__ = ("name", "began", "seconds", "choice")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    name: str
    began: float
    seconds: float
    choice: int
    def __init__(self, name: _Optional[str] = ..., began: _Optional[float] = ..., seconds: _Optional[float] = ..., choice: _Optional[int] = ...) -> None: ...
