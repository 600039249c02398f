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
POOLING_KIND_UNSPECIFIED: PoolingKind
POOLING_KIND_LAST: PoolingKind
POOLING_KIND_MEAN: PoolingKind

class Pooling(_message.Message):
    __slots__ = ("kind", "is_normalized")
    KIND_FIELD_NUMBER: _ClassVar[int]
    IS_NORMALIZED_FIELD_NUMBER: _ClassVar[int]
    kind: PoolingKind
    is_normalized: bool
    def __init__(self, kind: _Optional[_Union[PoolingKind, str]] = ..., is_normalized: bool = ...) -> None: ...
