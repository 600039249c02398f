from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AuditFinding(_message.Message):
    __slots__ = ("process", "kind", "detail")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    process: str
    kind: str
    detail: str
    def __init__(self, process: _Optional[str] = ..., kind: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class PoolAudit(_message.Message):
    __slots__ = ("worker", "num_blocks", "num_held", "num_cached", "num_free", "num_slots", "num_steps_in_flight", "num_computed_tokens", "num_queried_tokens", "num_hit_tokens", "groups")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_HELD_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_FIELD_NUMBER: _ClassVar[int]
    NUM_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_QUERIED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    num_blocks: int
    num_held: int
    num_cached: int
    num_free: int
    num_slots: int
    num_steps_in_flight: int
    num_computed_tokens: int
    num_queried_tokens: int
    num_hit_tokens: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupAudit]
    def __init__(self, worker: _Optional[str] = ..., num_blocks: _Optional[int] = ..., num_held: _Optional[int] = ..., num_cached: _Optional[int] = ..., num_free: _Optional[int] = ..., num_slots: _Optional[int] = ..., num_steps_in_flight: _Optional[int] = ..., num_computed_tokens: _Optional[int] = ..., num_queried_tokens: _Optional[int] = ..., num_hit_tokens: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupAudit, _Mapping]]] = ...) -> None: ...

class GroupAudit(_message.Message):
    __slots__ = ("window", "num_held", "most_held")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    NUM_HELD_FIELD_NUMBER: _ClassVar[int]
    MOST_HELD_FIELD_NUMBER: _ClassVar[int]
    window: int
    num_held: int
    most_held: int
    def __init__(self, window: _Optional[int] = ..., num_held: _Optional[int] = ..., most_held: _Optional[int] = ...) -> None: ...

class SchedulerAudit(_message.Message):
    __slots__ = ("num_requests", "num_waiting", "num_running", "pools", "findings", "num_preemptions", "num_rejected", "num_dropped_results")
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_REJECTED_FIELD_NUMBER: _ClassVar[int]
    NUM_DROPPED_RESULTS_FIELD_NUMBER: _ClassVar[int]
    num_requests: int
    num_waiting: int
    num_running: int
    pools: _containers.RepeatedCompositeFieldContainer[PoolAudit]
    findings: _containers.RepeatedCompositeFieldContainer[AuditFinding]
    num_preemptions: int
    num_rejected: int
    num_dropped_results: int
    def __init__(self, num_requests: _Optional[int] = ..., num_waiting: _Optional[int] = ..., num_running: _Optional[int] = ..., pools: _Optional[_Iterable[_Union[PoolAudit, _Mapping]]] = ..., findings: _Optional[_Iterable[_Union[AuditFinding, _Mapping]]] = ..., num_preemptions: _Optional[int] = ..., num_rejected: _Optional[int] = ..., num_dropped_results: _Optional[int] = ...) -> None: ...

class WorkerAudit(_message.Message):
    __slots__ = ("worker", "num_slots", "num_blocks_in_tables", "num_named_blocks", "num_steps_queued", "findings")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NUM_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_IN_TABLES_FIELD_NUMBER: _ClassVar[int]
    NUM_NAMED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_QUEUED_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    num_slots: int
    num_blocks_in_tables: int
    num_named_blocks: int
    num_steps_queued: int
    findings: _containers.RepeatedCompositeFieldContainer[AuditFinding]
    def __init__(self, worker: _Optional[str] = ..., num_slots: _Optional[int] = ..., num_blocks_in_tables: _Optional[int] = ..., num_named_blocks: _Optional[int] = ..., num_steps_queued: _Optional[int] = ..., findings: _Optional[_Iterable[_Union[AuditFinding, _Mapping]]] = ...) -> None: ...

class FrontendAudit(_message.Message):
    __slots__ = ("frontend", "num_open_streams", "num_handles", "findings", "num_resumed")
    FRONTEND_FIELD_NUMBER: _ClassVar[int]
    NUM_OPEN_STREAMS_FIELD_NUMBER: _ClassVar[int]
    NUM_HANDLES_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    NUM_RESUMED_FIELD_NUMBER: _ClassVar[int]
    frontend: str
    num_open_streams: int
    num_handles: int
    findings: _containers.RepeatedCompositeFieldContainer[AuditFinding]
    num_resumed: int
    def __init__(self, frontend: _Optional[str] = ..., num_open_streams: _Optional[int] = ..., num_handles: _Optional[int] = ..., findings: _Optional[_Iterable[_Union[AuditFinding, _Mapping]]] = ..., num_resumed: _Optional[int] = ...) -> None: ...

class AuditReport(_message.Message):
    __slots__ = ("generation", "scheduler", "workers", "frontends", "findings")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    FRONTENDS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    scheduler: SchedulerAudit
    workers: _containers.RepeatedCompositeFieldContainer[WorkerAudit]
    frontends: _containers.RepeatedCompositeFieldContainer[FrontendAudit]
    findings: _containers.RepeatedCompositeFieldContainer[AuditFinding]
    def __init__(self, generation: _Optional[int] = ..., scheduler: _Optional[_Union[SchedulerAudit, _Mapping]] = ..., workers: _Optional[_Iterable[_Union[WorkerAudit, _Mapping]]] = ..., frontends: _Optional[_Iterable[_Union[FrontendAudit, _Mapping]]] = ..., findings: _Optional[_Iterable[_Union[AuditFinding, _Mapping]]] = ...) -> None: ...
