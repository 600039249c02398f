from pagewire_protos.common.v1 import audit_pb2 as _audit_pb2
from pagewire_protos.common.v1 import layout_pb2 as _layout_pb2
from pagewire_protos.common.v1 import sleep_pb2 as _sleep_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as _worker_attach_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SchedulerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEDULER_STATE_UNSPECIFIED: _ClassVar[SchedulerState]
    SCHEDULER_STATE_ACTIVE: _ClassVar[SchedulerState]
    SCHEDULER_STATE_STANDBY: _ClassVar[SchedulerState]
    SCHEDULER_STATE_LOST: _ClassVar[SchedulerState]
SCHEDULER_STATE_UNSPECIFIED: SchedulerState
SCHEDULER_STATE_ACTIVE: SchedulerState
SCHEDULER_STATE_STANDBY: SchedulerState
SCHEDULER_STATE_LOST: SchedulerState

class AuditRequest(_message.Message):
    __slots__ = ("timeout_ms",)
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    def __init__(self, timeout_ms: _Optional[int] = ...) -> None: ...

class AuditResponse(_message.Message):
    __slots__ = ("reports",)
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[_audit_pb2.AuditReport]
    def __init__(self, reports: _Optional[_Iterable[_Union[_audit_pb2.AuditReport, _Mapping]]] = ...) -> None: ...

class ResetPrefixCacheRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class ResetPrefixCacheResponse(_message.Message):
    __slots__ = ("num_blocks",)
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    num_blocks: int
    def __init__(self, num_blocks: _Optional[int] = ...) -> None: ...

class SetRolesRequest(_message.Message):
    __slots__ = ("worker", "roles")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    worker: str
    roles: _containers.RepeatedScalarFieldContainer[_worker_attach_pb2.WorkerRole]
    def __init__(self, worker: _Optional[str] = ..., roles: _Optional[_Iterable[_Union[_worker_attach_pb2.WorkerRole, str]]] = ...) -> None: ...

class SetRolesResponse(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: WorkerTopology
    def __init__(self, worker: _Optional[_Union[WorkerTopology, _Mapping]] = ...) -> None: ...

class TopologyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TopologyResponse(_message.Message):
    __slots__ = ("cells",)
    CELLS_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedCompositeFieldContainer[CellTopology]
    def __init__(self, cells: _Optional[_Iterable[_Union[CellTopology, _Mapping]]] = ...) -> None: ...

class CellTopology(_message.Message):
    __slots__ = ("generation", "handoff", "workers", "pairs", "warnings", "stores", "kvstore_copies", "schedulers")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    KVSTORE_COPIES_FIELD_NUMBER: _ClassVar[int]
    SCHEDULERS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    handoff: str
    workers: _containers.RepeatedCompositeFieldContainer[WorkerTopology]
    pairs: _containers.RepeatedCompositeFieldContainer[PairTopology]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    stores: _containers.RepeatedCompositeFieldContainer[StoreTopology]
    kvstore_copies: int
    schedulers: _containers.RepeatedCompositeFieldContainer[SchedulerTopology]
    def __init__(self, generation: _Optional[int] = ..., handoff: _Optional[str] = ..., workers: _Optional[_Iterable[_Union[WorkerTopology, _Mapping]]] = ..., pairs: _Optional[_Iterable[_Union[PairTopology, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., stores: _Optional[_Iterable[_Union[StoreTopology, _Mapping]]] = ..., kvstore_copies: _Optional[int] = ..., schedulers: _Optional[_Iterable[_Union[SchedulerTopology, _Mapping]]] = ...) -> None: ...

class SchedulerTopology(_message.Message):
    __slots__ = ("address", "state")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    address: str
    state: SchedulerState
    def __init__(self, address: _Optional[str] = ..., state: _Optional[_Union[SchedulerState, str]] = ...) -> None: ...

class StoreTopology(_message.Message):
    __slots__ = ("address", "is_up", "num_blocks")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_UP_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    address: str
    is_up: bool
    num_blocks: int
    def __init__(self, address: _Optional[str] = ..., is_up: bool = ..., num_blocks: _Optional[int] = ...) -> None: ...

class WorkerTopology(_message.Message):
    __slots__ = ("worker", "model", "roles", "is_draining", "kv_endpoint", "kv_transports", "layout", "num_running", "num_waiting", "max_num_seqs", "sleep")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    KV_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    KV_TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    SLEEP_FIELD_NUMBER: _ClassVar[int]
    worker: str
    model: str
    roles: _containers.RepeatedScalarFieldContainer[_worker_attach_pb2.WorkerRole]
    is_draining: bool
    kv_endpoint: str
    kv_transports: _containers.RepeatedScalarFieldContainer[_layout_pb2.KvTransport]
    layout: str
    num_running: int
    num_waiting: int
    max_num_seqs: int
    sleep: _sleep_pb2.WorkerSleep
    def __init__(self, worker: _Optional[str] = ..., model: _Optional[str] = ..., roles: _Optional[_Iterable[_Union[_worker_attach_pb2.WorkerRole, str]]] = ..., is_draining: bool = ..., kv_endpoint: _Optional[str] = ..., kv_transports: _Optional[_Iterable[_Union[_layout_pb2.KvTransport, str]]] = ..., layout: _Optional[str] = ..., num_running: _Optional[int] = ..., num_waiting: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., sleep: _Optional[_Union[_sleep_pb2.WorkerSleep, _Mapping]] = ...) -> None: ...

class PairTopology(_message.Message):
    __slots__ = ("prefill", "decode", "refusal", "transport", "bytes_per_second", "num_transfers", "num_failures")
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    NUM_TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    NUM_FAILURES_FIELD_NUMBER: _ClassVar[int]
    prefill: str
    decode: str
    refusal: str
    transport: _layout_pb2.KvTransport
    bytes_per_second: float
    num_transfers: int
    num_failures: int
    def __init__(self, prefill: _Optional[str] = ..., decode: _Optional[str] = ..., refusal: _Optional[str] = ..., transport: _Optional[_Union[_layout_pb2.KvTransport, str]] = ..., bytes_per_second: _Optional[float] = ..., num_transfers: _Optional[int] = ..., num_failures: _Optional[int] = ...) -> None: ...

class SelfTestRequest(_message.Message):
    __slots__ = ("timeout_ms",)
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    def __init__(self, timeout_ms: _Optional[int] = ...) -> None: ...

class SelfTestResponse(_message.Message):
    __slots__ = ("cells",)
    CELLS_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedCompositeFieldContainer[CellSelfTest]
    def __init__(self, cells: _Optional[_Iterable[_Union[CellSelfTest, _Mapping]]] = ...) -> None: ...

class CellSelfTest(_message.Message):
    __slots__ = ("generation", "probes", "problems")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROBES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    probes: _containers.RepeatedCompositeFieldContainer[ProbeResult]
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., probes: _Optional[_Iterable[_Union[ProbeResult, _Mapping]]] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...

class ProbeResult(_message.Message):
    __slots__ = ("prefill", "decode", "num_blocks", "num_bytes", "transport", "is_equal", "time_us", "error")
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    IS_EQUAL_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    prefill: str
    decode: str
    num_blocks: int
    num_bytes: int
    transport: _layout_pb2.KvTransport
    is_equal: bool
    time_us: int
    error: str
    def __init__(self, prefill: _Optional[str] = ..., decode: _Optional[str] = ..., num_blocks: _Optional[int] = ..., num_bytes: _Optional[int] = ..., transport: _Optional[_Union[_layout_pb2.KvTransport, str]] = ..., is_equal: bool = ..., time_us: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class SleepRequest(_message.Message):
    __slots__ = ("level", "mode", "model", "worker", "timeout_ms")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    level: int
    mode: _sleep_pb2.SleepMode
    model: str
    worker: str
    timeout_ms: int
    def __init__(self, level: _Optional[int] = ..., mode: _Optional[_Union[_sleep_pb2.SleepMode, str]] = ..., model: _Optional[str] = ..., worker: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class SleepResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerTopology]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerTopology, _Mapping]]] = ...) -> None: ...

class WakeUpRequest(_message.Message):
    __slots__ = ("tags", "model", "worker", "timeout_ms")
    TAGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[_sleep_pb2.MemoryTag]
    model: str
    worker: str
    timeout_ms: int
    def __init__(self, tags: _Optional[_Iterable[_Union[_sleep_pb2.MemoryTag, str]]] = ..., model: _Optional[str] = ..., worker: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class WakeUpResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerTopology]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerTopology, _Mapping]]] = ...) -> None: ...
