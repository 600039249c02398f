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
    __slots__ = ("request_id", "label", "model", "seconds", "summary", "notes", "stages", "cause", "reasons", "outcome")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    label: str
    model: str
    seconds: float
    summary: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    stages: _containers.RepeatedCompositeFieldContainer[ExplainedStage]
    cause: ExplainedReason
    reasons: _containers.RepeatedCompositeFieldContainer[ExplainedReason]
    outcome: str
    def __init__(self, request_id: _Optional[str] = ..., label: _Optional[str] = ..., model: _Optional[str] = ..., seconds: _Optional[float] = ..., summary: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ..., stages: _Optional[_Iterable[_Union[ExplainedStage, _Mapping]]] = ..., cause: _Optional[_Union[ExplainedReason, _Mapping]] = ..., reasons: _Optional[_Iterable[_Union[ExplainedReason, _Mapping]]] = ..., outcome: _Optional[str] = ...) -> None: ...

class ExplainedReason(_message.Message):
    __slots__ = ("code", "seconds", "share", "choice")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    code: str
    seconds: float
    share: float
    choice: int
    def __init__(self, code: _Optional[str] = ..., seconds: _Optional[float] = ..., share: _Optional[float] = ..., choice: _Optional[int] = ...) -> None: ...

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
