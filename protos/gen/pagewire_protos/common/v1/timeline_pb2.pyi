from pagewire_protos.common.v1 import layout_pb2 as _layout_pb2
from pagewire_protos.common.v1 import usage_pb2 as _usage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MomentKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MOMENT_KIND_UNSPECIFIED: _ClassVar[MomentKind]
    MOMENT_KIND_PREFILL: _ClassVar[MomentKind]
    MOMENT_KIND_LOAD: _ClassVar[MomentKind]
    MOMENT_KIND_PAUSE: _ClassVar[MomentKind]
    MOMENT_KIND_DECODE: _ClassVar[MomentKind]

class PauseCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAUSE_CAUSE_UNSPECIFIED: _ClassVar[PauseCause]
    PAUSE_CAUSE_WORKER_LOST: _ClassVar[PauseCause]
    PAUSE_CAUSE_PREEMPTED: _ClassVar[PauseCause]
    PAUSE_CAUSE_MOVED: _ClassVar[PauseCause]

class QueueReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUEUE_REASON_UNSPECIFIED: _ClassVar[QueueReason]
    QUEUE_REASON_CAPACITY: _ClassVar[QueueReason]
    QUEUE_REASON_WORKER: _ClassVar[QueueReason]
    QUEUE_REASON_SLEEP: _ClassVar[QueueReason]
    QUEUE_REASON_TENANTS: _ClassVar[QueueReason]
    QUEUE_REASON_STEP: _ClassVar[QueueReason]
    QUEUE_REASON_ADAPTER: _ClassVar[QueueReason]
    QUEUE_REASON_GRAMMAR: _ClassVar[QueueReason]
    QUEUE_REASON_TRIAL: _ClassVar[QueueReason]
MOMENT_KIND_UNSPECIFIED: MomentKind
MOMENT_KIND_PREFILL: MomentKind
MOMENT_KIND_LOAD: MomentKind
MOMENT_KIND_PAUSE: MomentKind
MOMENT_KIND_DECODE: MomentKind
PAUSE_CAUSE_UNSPECIFIED: PauseCause
PAUSE_CAUSE_WORKER_LOST: PauseCause
PAUSE_CAUSE_PREEMPTED: PauseCause
PAUSE_CAUSE_MOVED: PauseCause
QUEUE_REASON_UNSPECIFIED: QueueReason
QUEUE_REASON_CAPACITY: QueueReason
QUEUE_REASON_WORKER: QueueReason
QUEUE_REASON_SLEEP: QueueReason
QUEUE_REASON_TENANTS: QueueReason
QUEUE_REASON_STEP: QueueReason
QUEUE_REASON_ADAPTER: QueueReason
QUEUE_REASON_GRAMMAR: QueueReason
QUEUE_REASON_TRIAL: QueueReason

class ChoiceTimeline(_message.Message):
    __slots__ = ("queue_us", "prefill_us", "transfer_us", "transfer_bytes", "transport", "num_preemptions", "num_migrations", "is_handed_off", "cached_tokens", "num_recoveries", "queue_waits", "paused_us", "moments")
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
    QUEUE_WAITS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_US_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_FIELD_NUMBER: _ClassVar[int]
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
    queue_waits: _containers.RepeatedCompositeFieldContainer[QueueWait]
    paused_us: int
    moments: _containers.RepeatedCompositeFieldContainer[TimelineMoment]
    def __init__(self, queue_us: _Optional[int] = ..., prefill_us: _Optional[int] = ..., transfer_us: _Optional[int] = ..., transfer_bytes: _Optional[int] = ..., transport: _Optional[_Union[_layout_pb2.KvTransport, str]] = ..., num_preemptions: _Optional[int] = ..., num_migrations: _Optional[int] = ..., is_handed_off: bool = ..., cached_tokens: _Optional[_Iterable[_Union[_usage_pb2.CachedTokens, _Mapping]]] = ..., num_recoveries: _Optional[int] = ..., queue_waits: _Optional[_Iterable[_Union[QueueWait, _Mapping]]] = ..., paused_us: _Optional[int] = ..., moments: _Optional[_Iterable[_Union[TimelineMoment, _Mapping]]] = ...) -> None: ...

class TimelineMoment(_message.Message):
    __slots__ = ("kind", "offset_us", "length_us", "worker_id", "num_tokens", "num_bytes", "num_blocks", "transport", "source_worker_id", "stores", "tiers", "cause")
    KIND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_US_FIELD_NUMBER: _ClassVar[int]
    LENGTH_US_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    kind: MomentKind
    offset_us: int
    length_us: int
    worker_id: bytes
    num_tokens: int
    num_bytes: int
    num_blocks: int
    transport: _layout_pb2.KvTransport
    source_worker_id: bytes
    stores: _containers.RepeatedCompositeFieldContainer[StoreShare]
    tiers: _containers.RepeatedCompositeFieldContainer[TierShare]
    cause: PauseCause
    def __init__(self, kind: _Optional[_Union[MomentKind, str]] = ..., offset_us: _Optional[int] = ..., length_us: _Optional[int] = ..., worker_id: _Optional[bytes] = ..., num_tokens: _Optional[int] = ..., num_bytes: _Optional[int] = ..., num_blocks: _Optional[int] = ..., transport: _Optional[_Union[_layout_pb2.KvTransport, str]] = ..., source_worker_id: _Optional[bytes] = ..., stores: _Optional[_Iterable[_Union[StoreShare, _Mapping]]] = ..., tiers: _Optional[_Iterable[_Union[TierShare, _Mapping]]] = ..., cause: _Optional[_Union[PauseCause, str]] = ...) -> None: ...

class StoreShare(_message.Message):
    __slots__ = ("address", "length_us", "num_bytes")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_US_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    address: str
    length_us: int
    num_bytes: int
    def __init__(self, address: _Optional[str] = ..., length_us: _Optional[int] = ..., num_bytes: _Optional[int] = ...) -> None: ...

class TierShare(_message.Message):
    __slots__ = ("tier", "num_blocks")
    TIER_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    tier: str
    num_blocks: int
    def __init__(self, tier: _Optional[str] = ..., num_blocks: _Optional[int] = ...) -> None: ...

class QueueWait(_message.Message):
    __slots__ = ("reason", "wait_us")
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAIT_US_FIELD_NUMBER: _ClassVar[int]
    reason: QueueReason
    wait_us: int
    def __init__(self, reason: _Optional[_Union[QueueReason, str]] = ..., wait_us: _Optional[int] = ...) -> None: ...
