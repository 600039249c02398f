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
    __slots__ = ("protocol", "layout", "names", "remaining_ms", "worker_id", "use_shared_memory", "engine")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    USE_SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    protocol: _layout_pb2.ProtocolRange
    layout: _layout_pb2.KvLayout
    names: bytes
    remaining_ms: int
    worker_id: bytes
    use_shared_memory: bool
    engine: _layout_pb2.KvTransport
    def __init__(self, protocol: _Optional[_Union[_layout_pb2.ProtocolRange, _Mapping]] = ..., layout: _Optional[_Union[_layout_pb2.KvLayout, _Mapping]] = ..., names: _Optional[bytes] = ..., remaining_ms: _Optional[int] = ..., worker_id: _Optional[bytes] = ..., use_shared_memory: bool = ..., engine: _Optional[_Union[_layout_pb2.KvTransport, str]] = ...) -> None: ...

class PullCredit(_message.Message):
    __slots__ = ("num_chunks",)
    NUM_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    num_chunks: int
    def __init__(self, num_chunks: _Optional[int] = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("missing", "accepted", "layers")
    MISSING_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    missing: PullMissing
    accepted: PullAccepted
    layers: KvLayers
    def __init__(self, missing: _Optional[_Union[PullMissing, _Mapping]] = ..., accepted: _Optional[_Union[PullAccepted, _Mapping]] = ..., layers: _Optional[_Union[KvLayers, _Mapping]] = ...) -> None: ...

class PullAccepted(_message.Message):
    __slots__ = ("protocol", "staging", "lent")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    STAGING_FIELD_NUMBER: _ClassVar[int]
    LENT_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    staging: KvStaging
    lent: KvLentMemory
    def __init__(self, protocol: _Optional[int] = ..., staging: _Optional[_Union[KvStaging, _Mapping]] = ..., lent: _Optional[_Union[KvLentMemory, _Mapping]] = ...) -> None: ...

class KvLentMemory(_message.Message):
    __slots__ = ("transport", "description", "address", "num_bytes")
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    transport: _layout_pb2.KvTransport
    description: bytes
    address: int
    num_bytes: int
    def __init__(self, transport: _Optional[_Union[_layout_pb2.KvTransport, str]] = ..., description: _Optional[bytes] = ..., address: _Optional[int] = ..., num_bytes: _Optional[int] = ...) -> None: ...

class KvStaging(_message.Message):
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

class PullMissing(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    def __init__(self, names: _Optional[bytes] = ...) -> None: ...

class KvLayers(_message.Message):
    __slots__ = ("first_block", "num_blocks", "first_layer", "num_layers", "checksum", "offset", "seal", "data")
    FIRST_BLOCK_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FIRST_LAYER_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    first_block: int
    num_blocks: int
    first_layer: int
    num_layers: int
    checksum: int
    offset: int
    seal: bytes
    data: bytes
    def __init__(self, first_block: _Optional[int] = ..., num_blocks: _Optional[int] = ..., first_layer: _Optional[int] = ..., num_layers: _Optional[int] = ..., checksum: _Optional[int] = ..., offset: _Optional[int] = ..., seal: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...
