from pagewire_protos.common.v1 import error_pb2 as _error_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as _inference_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GenerateBatchRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[BatchItem]
    def __init__(self, items: _Optional[_Iterable[_Union[BatchItem, _Mapping]]] = ...) -> None: ...

class BatchItem(_message.Message):
    __slots__ = ("complete", "chat")
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    complete: _inference_pb2.CompleteRequest
    chat: _inference_pb2.ChatRequest
    def __init__(self, complete: _Optional[_Union[_inference_pb2.CompleteRequest, _Mapping]] = ..., chat: _Optional[_Union[_inference_pb2.ChatRequest, _Mapping]] = ...) -> None: ...

class GenerateBatchResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[BatchAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[BatchAnswer, _Mapping]]] = ...) -> None: ...

class BatchAnswer(_message.Message):
    __slots__ = ("index", "events", "error", "prompt")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    index: int
    events: _containers.RepeatedCompositeFieldContainer[_inference_pb2.CompleteResponse]
    error: _error_pb2.ErrorDetail
    prompt: str
    def __init__(self, index: _Optional[int] = ..., events: _Optional[_Iterable[_Union[_inference_pb2.CompleteResponse, _Mapping]]] = ..., error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ..., prompt: _Optional[str] = ...) -> None: ...
