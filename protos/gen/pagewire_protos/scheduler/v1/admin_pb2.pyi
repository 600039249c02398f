from pagewire_protos.common.v1 import audit_pb2 as _audit_pb2
from pagewire_protos.common.v1 import layout_pb2 as _layout_pb2
from pagewire_protos.common.v1 import sleep_pb2 as _sleep_pb2
from pagewire_protos.common.v1 import stacks_pb2 as _stacks_pb2
from pagewire_protos.common.v1 import weights_pb2 as _weights_pb2
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
    __slots__ = ("generation", "handoff", "workers", "pairs", "warnings", "stores", "kvstore_copies", "schedulers", "models")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    KVSTORE_COPIES_FIELD_NUMBER: _ClassVar[int]
    SCHEDULERS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    handoff: str
    workers: _containers.RepeatedCompositeFieldContainer[WorkerTopology]
    pairs: _containers.RepeatedCompositeFieldContainer[PairTopology]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    stores: _containers.RepeatedCompositeFieldContainer[StoreTopology]
    kvstore_copies: int
    schedulers: _containers.RepeatedCompositeFieldContainer[SchedulerTopology]
    models: _containers.RepeatedCompositeFieldContainer[ModelTopology]
    def __init__(self, generation: _Optional[int] = ..., handoff: _Optional[str] = ..., workers: _Optional[_Iterable[_Union[WorkerTopology, _Mapping]]] = ..., pairs: _Optional[_Iterable[_Union[PairTopology, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., stores: _Optional[_Iterable[_Union[StoreTopology, _Mapping]]] = ..., kvstore_copies: _Optional[int] = ..., schedulers: _Optional[_Iterable[_Union[SchedulerTopology, _Mapping]]] = ..., models: _Optional[_Iterable[_Union[ModelTopology, _Mapping]]] = ...) -> None: ...

class SchedulerTopology(_message.Message):
    __slots__ = ("address", "state")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    address: str
    state: SchedulerState
    def __init__(self, address: _Optional[str] = ..., state: _Optional[_Union[SchedulerState, str]] = ...) -> None: ...

class StoreTopology(_message.Message):
    __slots__ = ("address", "is_up", "num_blocks", "tiers")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_UP_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    address: str
    is_up: bool
    num_blocks: int
    tiers: _containers.RepeatedCompositeFieldContainer[StoreTier]
    def __init__(self, address: _Optional[str] = ..., is_up: bool = ..., num_blocks: _Optional[int] = ..., tiers: _Optional[_Iterable[_Union[StoreTier, _Mapping]]] = ...) -> None: ...

class StoreTier(_message.Message):
    __slots__ = ("tier", "num_blocks", "used_bytes", "capacity_bytes", "fault")
    TIER_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    tier: str
    num_blocks: int
    used_bytes: int
    capacity_bytes: int
    fault: str
    def __init__(self, tier: _Optional[str] = ..., num_blocks: _Optional[int] = ..., used_bytes: _Optional[int] = ..., capacity_bytes: _Optional[int] = ..., fault: _Optional[str] = ...) -> None: ...

class ModelTopology(_message.Message):
    __slots__ = ("model", "num_queried_tokens", "found_tokens", "num_lost_workers", "num_requeued_sequences", "num_preemptions")
    class FoundTokensEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_QUERIED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FOUND_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_LOST_WORKERS_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUEUED_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    model: str
    num_queried_tokens: int
    found_tokens: _containers.ScalarMap[str, int]
    num_lost_workers: int
    num_requeued_sequences: int
    num_preemptions: int
    def __init__(self, model: _Optional[str] = ..., num_queried_tokens: _Optional[int] = ..., found_tokens: _Optional[_Mapping[str, int]] = ..., num_lost_workers: _Optional[int] = ..., num_requeued_sequences: _Optional[int] = ..., num_preemptions: _Optional[int] = ...) -> None: ...

class WorkerTopology(_message.Message):
    __slots__ = ("worker", "model", "roles", "is_draining", "kv_endpoint", "kv_transports", "layout", "num_running", "num_waiting", "max_num_seqs", "sleep", "weights")
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
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
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
    weights: _weights_pb2.WeightsVersion
    def __init__(self, worker: _Optional[str] = ..., model: _Optional[str] = ..., roles: _Optional[_Iterable[_Union[_worker_attach_pb2.WorkerRole, str]]] = ..., is_draining: bool = ..., kv_endpoint: _Optional[str] = ..., kv_transports: _Optional[_Iterable[_Union[_layout_pb2.KvTransport, str]]] = ..., layout: _Optional[str] = ..., num_running: _Optional[int] = ..., num_waiting: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., sleep: _Optional[_Union[_sleep_pb2.WorkerSleep, _Mapping]] = ..., weights: _Optional[_Union[_weights_pb2.WeightsVersion, _Mapping]] = ...) -> None: ...

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

class UpdateWeightsRequest(_message.Message):
    __slots__ = ("path", "version", "mode", "model", "timeout_ms")
    PATH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    path: str
    version: str
    mode: _weights_pb2.UpdateMode
    model: str
    timeout_ms: int
    def __init__(self, path: _Optional[str] = ..., version: _Optional[str] = ..., mode: _Optional[_Union[_weights_pb2.UpdateMode, str]] = ..., model: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class UpdateWeightsResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerTopology]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerTopology, _Mapping]]] = ...) -> None: ...

class StreamWeightsResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerTopology]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerTopology, _Mapping]]] = ...) -> None: ...

class StreamWeightsRequest(_message.Message):
    __slots__ = ("begin", "bucket", "end")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    begin: UpdateWeightsRequest
    bucket: TensorBucket
    end: TensorsEnd
    def __init__(self, begin: _Optional[_Union[UpdateWeightsRequest, _Mapping]] = ..., bucket: _Optional[_Union[TensorBucket, _Mapping]] = ..., end: _Optional[_Union[TensorsEnd, _Mapping]] = ...) -> None: ...

class TensorBucket(_message.Message):
    __slots__ = ("tensors", "data")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[TensorHead]
    data: bytes
    def __init__(self, tensors: _Optional[_Iterable[_Union[TensorHead, _Mapping]]] = ..., data: _Optional[bytes] = ...) -> None: ...

class TensorHead(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class TensorsEnd(_message.Message):
    __slots__ = ("num_tensors",)
    NUM_TENSORS_FIELD_NUMBER: _ClassVar[int]
    num_tensors: int
    def __init__(self, num_tensors: _Optional[int] = ...) -> None: ...

class StartProfileRequest(_message.Message):
    __slots__ = ("worker", "model", "num_steps", "timeout_ms")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    model: str
    num_steps: int
    timeout_ms: int
    def __init__(self, worker: _Optional[str] = ..., model: _Optional[str] = ..., num_steps: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class StartProfileResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, workers: _Optional[_Iterable[str]] = ...) -> None: ...

class ReadProfileRequest(_message.Message):
    __slots__ = ("worker", "ends_profile")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ENDS_PROFILE_FIELD_NUMBER: _ClassVar[int]
    worker: str
    ends_profile: bool
    def __init__(self, worker: _Optional[str] = ..., ends_profile: bool = ...) -> None: ...

class ReadProfileResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class StacksRequest(_message.Message):
    __slots__ = ("target", "timeout_ms")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    target: str
    timeout_ms: int
    def __init__(self, target: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class StacksResponse(_message.Message):
    __slots__ = ("processes",)
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    processes: _containers.RepeatedCompositeFieldContainer[_stacks_pb2.ProcessStacks]
    def __init__(self, processes: _Optional[_Iterable[_Union[_stacks_pb2.ProcessStacks, _Mapping]]] = ...) -> None: ...

class CollectiveRpcRequest(_message.Message):
    __slots__ = ("method", "args_json", "kwargs_json", "timeout_ms", "worker", "model", "unique_reply_rank")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_REPLY_RANK_FIELD_NUMBER: _ClassVar[int]
    method: str
    args_json: str
    kwargs_json: str
    timeout_ms: int
    worker: str
    model: str
    unique_reply_rank: int
    def __init__(self, method: _Optional[str] = ..., args_json: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., worker: _Optional[str] = ..., model: _Optional[str] = ..., unique_reply_rank: _Optional[int] = ...) -> None: ...

class CollectiveRpcResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerResults]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerResults, _Mapping]]] = ...) -> None: ...

class WorkerResults(_message.Message):
    __slots__ = ("worker", "results_json")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_JSON_FIELD_NUMBER: _ClassVar[int]
    worker: str
    results_json: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, worker: _Optional[str] = ..., results_json: _Optional[_Iterable[str]] = ...) -> None: ...
