from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CacheKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_KIND_UNSPECIFIED: _ClassVar[CacheKind]
    CACHE_KIND_FULL: _ClassVar[CacheKind]
    CACHE_KIND_SLIDING: _ClassVar[CacheKind]
    CACHE_KIND_LATENT: _ClassVar[CacheKind]
    CACHE_KIND_STATE: _ClassVar[CacheKind]

class KvTransport(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KV_TRANSPORT_UNSPECIFIED: _ClassVar[KvTransport]
    KV_TRANSPORT_GRPC: _ClassVar[KvTransport]
    KV_TRANSPORT_SHARED_MEMORY: _ClassVar[KvTransport]
    KV_TRANSPORT_NIXL: _ClassVar[KvTransport]
    KV_TRANSPORT_MOONCAKE: _ClassVar[KvTransport]
CACHE_KIND_UNSPECIFIED: CacheKind
CACHE_KIND_FULL: CacheKind
CACHE_KIND_SLIDING: CacheKind
CACHE_KIND_LATENT: CacheKind
CACHE_KIND_STATE: CacheKind
KV_TRANSPORT_UNSPECIFIED: KvTransport
KV_TRANSPORT_GRPC: KvTransport
KV_TRANSPORT_SHARED_MEMORY: KvTransport
KV_TRANSPORT_NIXL: KvTransport
KV_TRANSPORT_MOONCAKE: KvTransport

class ProtocolRange(_message.Message):
    __slots__ = ("min", "max")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    min: int
    max: int
    def __init__(self, min: _Optional[int] = ..., max: _Optional[int] = ...) -> None: ...

class CacheGroup(_message.Message):
    __slots__ = ("kind", "num_layers", "block_size", "bytes_per_block", "shard", "num_shards", "dtype", "window")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_BLOCK_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    NUM_SHARDS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    kind: CacheKind
    num_layers: int
    block_size: int
    bytes_per_block: int
    shard: int
    num_shards: int
    dtype: str
    window: int
    def __init__(self, kind: _Optional[_Union[CacheKind, str]] = ..., num_layers: _Optional[int] = ..., block_size: _Optional[int] = ..., bytes_per_block: _Optional[int] = ..., shard: _Optional[int] = ..., num_shards: _Optional[int] = ..., dtype: _Optional[str] = ..., window: _Optional[int] = ...) -> None: ...

class KvLayout(_message.Message):
    __slots__ = ("model_fingerprint", "numerics_fingerprint", "groups", "fingerprint_version")
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_VERSION_FIELD_NUMBER: _ClassVar[int]
    model_fingerprint: bytes
    numerics_fingerprint: bytes
    groups: _containers.RepeatedCompositeFieldContainer[CacheGroup]
    fingerprint_version: int
    def __init__(self, model_fingerprint: _Optional[bytes] = ..., numerics_fingerprint: _Optional[bytes] = ..., groups: _Optional[_Iterable[_Union[CacheGroup, _Mapping]]] = ..., fingerprint_version: _Optional[int] = ...) -> None: ...

class KvChunk(_message.Message):
    __slots__ = ("name", "group", "first_layer", "num_layers", "offset", "checksum", "is_last", "payload_checksum", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FIRST_LAYER_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    group: int
    first_layer: int
    num_layers: int
    offset: int
    checksum: int
    is_last: bool
    payload_checksum: int
    data: bytes
    def __init__(self, name: _Optional[bytes] = ..., group: _Optional[int] = ..., first_layer: _Optional[int] = ..., num_layers: _Optional[int] = ..., offset: _Optional[int] = ..., checksum: _Optional[int] = ..., is_last: bool = ..., payload_checksum: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
