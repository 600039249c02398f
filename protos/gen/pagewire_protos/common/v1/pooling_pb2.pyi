from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PoolingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POOLING_KIND_UNSPECIFIED: _ClassVar[PoolingKind]
    POOLING_KIND_LAST: _ClassVar[PoolingKind]
    POOLING_KIND_MEAN: _ClassVar[PoolingKind]
    POOLING_KIND_CLS: _ClassVar[PoolingKind]
    POOLING_KIND_TOKENS: _ClassVar[PoolingKind]
    POOLING_KIND_SCORES: _ClassVar[PoolingKind]
POOLING_KIND_UNSPECIFIED: PoolingKind
POOLING_KIND_LAST: PoolingKind
POOLING_KIND_MEAN: PoolingKind
POOLING_KIND_CLS: PoolingKind
POOLING_KIND_TOKENS: PoolingKind
POOLING_KIND_SCORES: PoolingKind

class Pooling(_message.Message):
    __slots__ = ("kind", "is_normalized", "second_start")
    KIND_FIELD_NUMBER: _ClassVar[int]
    IS_NORMALIZED_FIELD_NUMBER: _ClassVar[int]
    SECOND_START_FIELD_NUMBER: _ClassVar[int]
    kind: PoolingKind
    is_normalized: bool
    second_start: int
    def __init__(self, kind: _Optional[_Union[PoolingKind, str]] = ..., is_normalized: bool = ..., second_start: _Optional[int] = ...) -> None: ...
