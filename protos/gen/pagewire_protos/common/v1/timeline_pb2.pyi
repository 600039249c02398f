from pagewire_protos.common.v1 import layout_pb2 as _layout_pb2
from pagewire_protos.common.v1 import usage_pb2 as _usage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChoiceTimeline(_message.Message):
    __slots__ = ("queue_us", "prefill_us", "transfer_us", "transfer_bytes", "transport", "num_preemptions", "num_migrations", "is_handed_off", "cached_tokens", "num_recoveries")
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    PREFILL_US_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_US_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_MIGRATIONS_FIELD_NUMBER: _ClassVar[int]
    IS_HANDED_OFF_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_RECOVERIES_FIELD_NUMBER: _ClassVar[int]
    queue_us: int
    prefill_us: int
    transfer_us: int
    transfer_bytes: int
    transport: _layout_pb2.KvTransport
    num_preemptions: int
    num_migrations: int
    is_handed_off: bool
    cached_tokens: _containers.RepeatedCompositeFieldContainer[_usage_pb2.CachedTokens]
    num_recoveries: int
    def __init__(self, queue_us: _Optional[int] = ..., prefill_us: _Optional[int] = ..., transfer_us: _Optional[int] = ..., transfer_bytes: _Optional[int] = ..., transport: _Optional[_Union[_layout_pb2.KvTransport, str]] = ..., num_preemptions: _Optional[int] = ..., num_migrations: _Optional[int] = ..., is_handed_off: bool = ..., cached_tokens: _Optional[_Iterable[_Union[_usage_pb2.CachedTokens, _Mapping]]] = ..., num_recoveries: _Optional[int] = ...) -> None: ...
