from pagewire_protos.common.v1 import layout_pb2 as _layout_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PullRequest(_message.Message):
    __slots__ = ("open", "credit")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    open: PullOpen
    credit: PullCredit
    def __init__(self, open: _Optional[_Union[PullOpen, _Mapping]] = ..., credit: _Optional[_Union[PullCredit, _Mapping]] = ...) -> None: ...

class PullOpen(_message.Message):
    __slots__ = ("protocol", "layout", "names", "remaining_ms")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    protocol: _layout_pb2.ProtocolRange
    layout: _layout_pb2.KvLayout
    names: bytes
    remaining_ms: int
    def __init__(self, protocol: _Optional[_Union[_layout_pb2.ProtocolRange, _Mapping]] = ..., layout: _Optional[_Union[_layout_pb2.KvLayout, _Mapping]] = ..., names: _Optional[bytes] = ..., remaining_ms: _Optional[int] = ...) -> None: ...

class PullCredit(_message.Message):
    __slots__ = ("num_chunks",)
    NUM_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    num_chunks: int
    def __init__(self, num_chunks: _Optional[int] = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("chunk", "missing")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    chunk: _layout_pb2.KvChunk
    missing: PullMissing
    def __init__(self, chunk: _Optional[_Union[_layout_pb2.KvChunk, _Mapping]] = ..., missing: _Optional[_Union[PullMissing, _Mapping]] = ...) -> None: ...

class PullMissing(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    def __init__(self, names: _Optional[bytes] = ...) -> None: ...
