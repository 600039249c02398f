from pagewire_protos.common.v1 import layout_pb2 as _layout_pb2
from pagewire_protos.common.v1 import stacks_pb2 as _stacks_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ("protocol", "layout")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    protocol: _layout_pb2.ProtocolRange
    layout: _layout_pb2.KvLayout
    def __init__(self, protocol: _Optional[_Union[_layout_pb2.ProtocolRange, _Mapping]] = ..., layout: _Optional[_Union[_layout_pb2.KvLayout, _Mapping]] = ...) -> None: ...

class HelloResponse(_message.Message):
    __slots__ = ("protocol", "store_id", "shared_memory")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    store_id: bytes
    shared_memory: SharedMemory
    def __init__(self, protocol: _Optional[int] = ..., store_id: _Optional[bytes] = ..., shared_memory: _Optional[_Union[SharedMemory, _Mapping]] = ...) -> None: ...

class SharedMemory(_message.Message):
    __slots__ = ("path", "boot_id", "device", "inode", "num_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    boot_id: str
    device: int
    inode: int
    num_bytes: int
    def __init__(self, path: _Optional[str] = ..., boot_id: _Optional[str] = ..., device: _Optional[int] = ..., inode: _Optional[int] = ..., num_bytes: _Optional[int] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ("announce", "chunk", "publish")
    ANNOUNCE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    announce: PutAnnounce
    chunk: _layout_pb2.KvChunk
    publish: PutPublish
    def __init__(self, announce: _Optional[_Union[PutAnnounce, _Mapping]] = ..., chunk: _Optional[_Union[_layout_pb2.KvChunk, _Mapping]] = ..., publish: _Optional[_Union[PutPublish, _Mapping]] = ...) -> None: ...

class PutAnnounce(_message.Message):
    __slots__ = ("layout", "names", "tenant", "use_shared_memory")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USE_SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    layout: _layout_pb2.KvLayout
    names: bytes
    tenant: str
    use_shared_memory: bool
    def __init__(self, layout: _Optional[_Union[_layout_pb2.KvLayout, _Mapping]] = ..., names: _Optional[bytes] = ..., tenant: _Optional[str] = ..., use_shared_memory: bool = ...) -> None: ...

class PutPublish(_message.Message):
    __slots__ = ("names", "checksums")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    checksums: bytes
    def __init__(self, names: _Optional[bytes] = ..., checksums: _Optional[bytes] = ...) -> None: ...

class PutResponse(_message.Message):
    __slots__ = ("wanted", "published", "credit")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    wanted: PutWanted
    published: PutPublished
    credit: PutCredit
    def __init__(self, wanted: _Optional[_Union[PutWanted, _Mapping]] = ..., published: _Optional[_Union[PutPublished, _Mapping]] = ..., credit: _Optional[_Union[PutCredit, _Mapping]] = ...) -> None: ...

class PutWanted(_message.Message):
    __slots__ = ("names", "offsets", "declined")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    offsets: bytes
    declined: bytes
    def __init__(self, names: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., declined: _Optional[bytes] = ...) -> None: ...

class PutPublished(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    def __init__(self, names: _Optional[bytes] = ...) -> None: ...

class PutCredit(_message.Message):
    __slots__ = ("num_chunks",)
    NUM_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    num_chunks: int
    def __init__(self, num_chunks: _Optional[int] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("open", "credit", "release")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    open: GetOpen
    credit: GetCredit
    release: GetRelease
    def __init__(self, open: _Optional[_Union[GetOpen, _Mapping]] = ..., credit: _Optional[_Union[GetCredit, _Mapping]] = ..., release: _Optional[_Union[GetRelease, _Mapping]] = ...) -> None: ...

class GetOpen(_message.Message):
    __slots__ = ("layout", "names", "use_shared_memory")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    USE_SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    layout: _layout_pb2.KvLayout
    names: bytes
    use_shared_memory: bool
    def __init__(self, layout: _Optional[_Union[_layout_pb2.KvLayout, _Mapping]] = ..., names: _Optional[bytes] = ..., use_shared_memory: bool = ...) -> None: ...

class GetCredit(_message.Message):
    __slots__ = ("num_chunks",)
    NUM_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    num_chunks: int
    def __init__(self, num_chunks: _Optional[int] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("chunk", "missing", "source", "shared")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    chunk: _layout_pb2.KvChunk
    missing: GetMissing
    source: GetSource
    shared: GetShared
    def __init__(self, chunk: _Optional[_Union[_layout_pb2.KvChunk, _Mapping]] = ..., missing: _Optional[_Union[GetMissing, _Mapping]] = ..., source: _Optional[_Union[GetSource, _Mapping]] = ..., shared: _Optional[_Union[GetShared, _Mapping]] = ...) -> None: ...

class GetSource(_message.Message):
    __slots__ = ("tier",)
    TIER_FIELD_NUMBER: _ClassVar[int]
    tier: str
    def __init__(self, tier: _Optional[str] = ...) -> None: ...

class GetShared(_message.Message):
    __slots__ = ("names", "offsets", "checksums")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    offsets: bytes
    checksums: bytes
    def __init__(self, names: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., checksums: _Optional[bytes] = ...) -> None: ...

class GetRelease(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    def __init__(self, names: _Optional[bytes] = ...) -> None: ...

class GetMissing(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    def __init__(self, names: _Optional[bytes] = ...) -> None: ...

class ExistRequest(_message.Message):
    __slots__ = ("layout", "names")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    layout: _layout_pb2.KvLayout
    names: bytes
    def __init__(self, layout: _Optional[_Union[_layout_pb2.KvLayout, _Mapping]] = ..., names: _Optional[bytes] = ...) -> None: ...

class ExistResponse(_message.Message):
    __slots__ = ("is_there",)
    IS_THERE_FIELD_NUMBER: _ClassVar[int]
    is_there: bytes
    def __init__(self, is_there: _Optional[bytes] = ...) -> None: ...

class PinRequest(_message.Message):
    __slots__ = ("names", "lease_ms", "layout")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    lease_ms: int
    layout: _layout_pb2.KvLayout
    def __init__(self, names: _Optional[bytes] = ..., lease_ms: _Optional[int] = ..., layout: _Optional[_Union[_layout_pb2.KvLayout, _Mapping]] = ...) -> None: ...

class PinResponse(_message.Message):
    __slots__ = ("lease_id", "missing_names")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    MISSING_NAMES_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    missing_names: bytes
    def __init__(self, lease_id: _Optional[int] = ..., missing_names: _Optional[bytes] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("lease_id",)
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    def __init__(self, lease_id: _Optional[int] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class DeleteResponse(_message.Message):
    __slots__ = ("num_blocks",)
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    num_blocks: int
    def __init__(self, num_blocks: _Optional[int] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("tiers",)
    TIERS_FIELD_NUMBER: _ClassVar[int]
    tiers: _containers.RepeatedCompositeFieldContainer[TierStats]
    def __init__(self, tiers: _Optional[_Iterable[_Union[TierStats, _Mapping]]] = ...) -> None: ...

class TierStats(_message.Message):
    __slots__ = ("tier", "num_blocks", "used_bytes", "capacity_bytes", "num_hits", "num_misses", "num_corrupt", "num_faults", "fault")
    TIER_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_HITS_FIELD_NUMBER: _ClassVar[int]
    NUM_MISSES_FIELD_NUMBER: _ClassVar[int]
    NUM_CORRUPT_FIELD_NUMBER: _ClassVar[int]
    NUM_FAULTS_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    tier: str
    num_blocks: int
    used_bytes: int
    capacity_bytes: int
    num_hits: int
    num_misses: int
    num_corrupt: int
    num_faults: int
    fault: str
    def __init__(self, tier: _Optional[str] = ..., num_blocks: _Optional[int] = ..., used_bytes: _Optional[int] = ..., capacity_bytes: _Optional[int] = ..., num_hits: _Optional[int] = ..., num_misses: _Optional[int] = ..., num_corrupt: _Optional[int] = ..., num_faults: _Optional[int] = ..., fault: _Optional[str] = ...) -> None: ...

class WatchBlocksRequest(_message.Message):
    __slots__ = ("from_sequence", "store_id")
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    from_sequence: int
    store_id: bytes
    def __init__(self, from_sequence: _Optional[int] = ..., store_id: _Optional[bytes] = ...) -> None: ...

class WatchBlocksResponse(_message.Message):
    __slots__ = ("sequence", "stored", "removed", "cleared")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    stored: BlocksStored
    removed: BlocksRemoved
    cleared: BlocksCleared
    def __init__(self, sequence: _Optional[int] = ..., stored: _Optional[_Union[BlocksStored, _Mapping]] = ..., removed: _Optional[_Union[BlocksRemoved, _Mapping]] = ..., cleared: _Optional[_Union[BlocksCleared, _Mapping]] = ...) -> None: ...

class BlocksStored(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    def __init__(self, names: _Optional[bytes] = ...) -> None: ...

class BlocksRemoved(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    def __init__(self, names: _Optional[bytes] = ...) -> None: ...

class BlocksCleared(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStacksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStacksResponse(_message.Message):
    __slots__ = ("stacks",)
    STACKS_FIELD_NUMBER: _ClassVar[int]
    stacks: _stacks_pb2.ProcessStacks
    def __init__(self, stacks: _Optional[_Union[_stacks_pb2.ProcessStacks, _Mapping]] = ...) -> None: ...
