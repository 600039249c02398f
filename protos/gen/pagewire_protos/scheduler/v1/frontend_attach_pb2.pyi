from pagewire_protos.common.v1 import adapter_shapes_pb2 as _adapter_shapes_pb2
from pagewire_protos.common.v1 import audit_pb2 as _audit_pb2
from pagewire_protos.common.v1 import error_pb2 as _error_pb2
from pagewire_protos.common.v1 import layout_pb2 as _layout_pb2
from pagewire_protos.common.v1 import pooling_pb2 as _pooling_pb2
from pagewire_protos.common.v1 import sampling_pb2 as _sampling_pb2
from pagewire_protos.common.v1 import stacks_pb2 as _stacks_pb2
from pagewire_protos.common.v1 import timeline_pb2 as _timeline_pb2
from pagewire_protos.common.v1 import usage_pb2 as _usage_pb2
from pagewire_protos.common.v1 import weights_pb2 as _weights_pb2
from pagewire_protos.common.v1 import worker_query_pb2 as _worker_query_pb2
from pagewire_protos.scheduler.v1 import admin_pb2 as _admin_pb2
from pagewire_protos.scheduler.v1 import cell_metrics_pb2 as _cell_metrics_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttachFrontendRequest(_message.Message):
    __slots__ = ("hello", "submit", "abort", "audit_query", "audit_reply", "heartbeat", "reset_prefix_cache", "admin_query", "submits", "stacks_reply")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    AUDIT_QUERY_FIELD_NUMBER: _ClassVar[int]
    AUDIT_REPLY_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RESET_PREFIX_CACHE_FIELD_NUMBER: _ClassVar[int]
    ADMIN_QUERY_FIELD_NUMBER: _ClassVar[int]
    SUBMITS_FIELD_NUMBER: _ClassVar[int]
    STACKS_REPLY_FIELD_NUMBER: _ClassVar[int]
    hello: FrontendHello
    submit: Submit
    abort: Abort
    audit_query: AuditQuery
    audit_reply: FrontendAuditReply
    heartbeat: Heartbeat
    reset_prefix_cache: ResetPrefixCacheQuery
    admin_query: AdminQuery
    submits: SubmitBatch
    stacks_reply: StacksReply
    def __init__(self, hello: _Optional[_Union[FrontendHello, _Mapping]] = ..., submit: _Optional[_Union[Submit, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ..., audit_query: _Optional[_Union[AuditQuery, _Mapping]] = ..., audit_reply: _Optional[_Union[FrontendAuditReply, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., reset_prefix_cache: _Optional[_Union[ResetPrefixCacheQuery, _Mapping]] = ..., admin_query: _Optional[_Union[AdminQuery, _Mapping]] = ..., submits: _Optional[_Union[SubmitBatch, _Mapping]] = ..., stacks_reply: _Optional[_Union[StacksReply, _Mapping]] = ...) -> None: ...

class AttachFrontendResponse(_message.Message):
    __slots__ = ("welcome", "served_models", "tokens", "finished", "rejected", "audit_query", "audit_answer", "heartbeat", "prefix_cache_reset", "prompt_logprobs", "vectors", "timelines", "admin_answer", "cell_metrics", "failing", "begun", "stacks_query")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    SERVED_MODELS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    AUDIT_QUERY_FIELD_NUMBER: _ClassVar[int]
    AUDIT_ANSWER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PREFIX_CACHE_RESET_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    TIMELINES_FIELD_NUMBER: _ClassVar[int]
    ADMIN_ANSWER_FIELD_NUMBER: _ClassVar[int]
    CELL_METRICS_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    STACKS_QUERY_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    served_models: ServedModels
    tokens: TokenBatch
    finished: FinishedChoices
    rejected: Rejected
    audit_query: AuditQuery
    audit_answer: AuditAnswer
    heartbeat: Heartbeat
    prefix_cache_reset: ResetPrefixCacheAnswer
    prompt_logprobs: PromptLogprobBatch
    vectors: VectorBatch
    timelines: TimelineBatch
    admin_answer: AdminAnswer
    cell_metrics: _cell_metrics_pb2.CellMetrics
    failing: Failing
    begun: BegunBatch
    stacks_query: StacksQuery
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., served_models: _Optional[_Union[ServedModels, _Mapping]] = ..., tokens: _Optional[_Union[TokenBatch, _Mapping]] = ..., finished: _Optional[_Union[FinishedChoices, _Mapping]] = ..., rejected: _Optional[_Union[Rejected, _Mapping]] = ..., audit_query: _Optional[_Union[AuditQuery, _Mapping]] = ..., audit_answer: _Optional[_Union[AuditAnswer, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., prefix_cache_reset: _Optional[_Union[ResetPrefixCacheAnswer, _Mapping]] = ..., prompt_logprobs: _Optional[_Union[PromptLogprobBatch, _Mapping]] = ..., vectors: _Optional[_Union[VectorBatch, _Mapping]] = ..., timelines: _Optional[_Union[TimelineBatch, _Mapping]] = ..., admin_answer: _Optional[_Union[AdminAnswer, _Mapping]] = ..., cell_metrics: _Optional[_Union[_cell_metrics_pb2.CellMetrics, _Mapping]] = ..., failing: _Optional[_Union[Failing, _Mapping]] = ..., begun: _Optional[_Union[BegunBatch, _Mapping]] = ..., stacks_query: _Optional[_Union[StacksQuery, _Mapping]] = ...) -> None: ...

class FrontendHello(_message.Message):
    __slots__ = ("protocol", "frontend_id", "highest_generation", "models", "held_generation", "held", "cell")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FRONTEND_ID_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_GENERATION_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    HELD_GENERATION_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    protocol: _layout_pb2.ProtocolRange
    frontend_id: bytes
    highest_generation: int
    models: _containers.RepeatedCompositeFieldContainer[FrontendModel]
    held_generation: int
    held: _containers.RepeatedCompositeFieldContainer[HeldRequest]
    cell: str
    def __init__(self, protocol: _Optional[_Union[_layout_pb2.ProtocolRange, _Mapping]] = ..., frontend_id: _Optional[bytes] = ..., highest_generation: _Optional[int] = ..., models: _Optional[_Iterable[_Union[FrontendModel, _Mapping]]] = ..., held_generation: _Optional[int] = ..., held: _Optional[_Iterable[_Union[HeldRequest, _Mapping]]] = ..., cell: _Optional[str] = ...) -> None: ...

class FrontendModel(_message.Message):
    __slots__ = ("name", "tokenizer_fingerprint")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    name: str
    tokenizer_fingerprint: bytes
    def __init__(self, name: _Optional[str] = ..., tokenizer_fingerprint: _Optional[bytes] = ...) -> None: ...

class HeldRequest(_message.Message):
    __slots__ = ("request_id", "epoch", "handle", "next_positions")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    epoch: int
    handle: int
    next_positions: bytes
    def __init__(self, request_id: _Optional[bytes] = ..., epoch: _Optional[int] = ..., handle: _Optional[int] = ..., next_positions: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "generation", "resumed_handles", "served_models", "cell")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RESUMED_HANDLES_FIELD_NUMBER: _ClassVar[int]
    SERVED_MODELS_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    generation: int
    resumed_handles: bytes
    served_models: ServedModels
    cell: str
    def __init__(self, protocol: _Optional[int] = ..., generation: _Optional[int] = ..., resumed_handles: _Optional[bytes] = ..., served_models: _Optional[_Union[ServedModels, _Mapping]] = ..., cell: _Optional[str] = ...) -> None: ...

class ServedModels(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ServedModel]
    def __init__(self, models: _Optional[_Iterable[_Union[ServedModel, _Mapping]]] = ...) -> None: ...

class ServedModel(_message.Message):
    __slots__ = ("name", "model_fingerprint", "tokenizer_fingerprint", "max_model_len", "num_workers", "embedding_size", "namings", "max_adapter_rank", "max_adapters", "adapter_shapes", "is_exact")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_SIZE_FIELD_NUMBER: _ClassVar[int]
    NAMINGS_FIELD_NUMBER: _ClassVar[int]
    MAX_ADAPTER_RANK_FIELD_NUMBER: _ClassVar[int]
    MAX_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_SHAPES_FIELD_NUMBER: _ClassVar[int]
    IS_EXACT_FIELD_NUMBER: _ClassVar[int]
    name: str
    model_fingerprint: bytes
    tokenizer_fingerprint: bytes
    max_model_len: int
    num_workers: int
    embedding_size: int
    namings: _containers.RepeatedCompositeFieldContainer[BlockNaming]
    max_adapter_rank: int
    max_adapters: int
    adapter_shapes: _containers.RepeatedCompositeFieldContainer[_adapter_shapes_pb2.AdapterShapes]
    is_exact: bool
    def __init__(self, name: _Optional[str] = ..., model_fingerprint: _Optional[bytes] = ..., tokenizer_fingerprint: _Optional[bytes] = ..., max_model_len: _Optional[int] = ..., num_workers: _Optional[int] = ..., embedding_size: _Optional[int] = ..., namings: _Optional[_Iterable[_Union[BlockNaming, _Mapping]]] = ..., max_adapter_rank: _Optional[int] = ..., max_adapters: _Optional[int] = ..., adapter_shapes: _Optional[_Iterable[_Union[_adapter_shapes_pb2.AdapterShapes, _Mapping]]] = ..., is_exact: bool = ...) -> None: ...

class BlockNaming(_message.Message):
    __slots__ = ("layout_fingerprint", "dtype", "block_size", "is_by_tenant")
    LAYOUT_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    IS_BY_TENANT_FIELD_NUMBER: _ClassVar[int]
    layout_fingerprint: bytes
    dtype: str
    block_size: int
    is_by_tenant: bool
    def __init__(self, layout_fingerprint: _Optional[bytes] = ..., dtype: _Optional[str] = ..., block_size: _Optional[int] = ..., is_by_tenant: bool = ...) -> None: ...

class PromptBlocks(_message.Message):
    __slots__ = ("root", "block_size", "names")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    root: bytes
    block_size: int
    names: bytes
    def __init__(self, root: _Optional[bytes] = ..., block_size: _Optional[int] = ..., names: _Optional[bytes] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "epoch", "handle", "model", "adapter", "prompt_token_ids", "emitted", "sampling", "eos_token_ids", "tenant", "cache_salt", "priority", "remaining_ms", "generate", "pool", "age_ms", "prompt_blocks", "adapter_sources", "predicted_token_ids", "must_be_held", "cache_bytes", "weights", "is_traced")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    EMITTED_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    GENERATE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_SOURCES_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MUST_BE_HELD_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    IS_TRACED_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    epoch: int
    handle: int
    model: str
    adapter: bytes
    prompt_token_ids: bytes
    emitted: _containers.RepeatedCompositeFieldContainer[EmittedTokens]
    sampling: _sampling_pb2.SamplingParams
    eos_token_ids: bytes
    tenant: str
    cache_salt: bytes
    priority: int
    remaining_ms: int
    generate: GenerateKind
    pool: _pooling_pb2.Pooling
    age_ms: int
    prompt_blocks: PromptBlocks
    adapter_sources: _containers.RepeatedScalarFieldContainer[str]
    predicted_token_ids: bytes
    must_be_held: bool
    cache_bytes: int
    weights: _weights_pb2.WeightsVersion
    is_traced: bool
    def __init__(self, request_id: _Optional[bytes] = ..., epoch: _Optional[int] = ..., handle: _Optional[int] = ..., model: _Optional[str] = ..., adapter: _Optional[bytes] = ..., prompt_token_ids: _Optional[bytes] = ..., emitted: _Optional[_Iterable[_Union[EmittedTokens, _Mapping]]] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParams, _Mapping]] = ..., eos_token_ids: _Optional[bytes] = ..., tenant: _Optional[str] = ..., cache_salt: _Optional[bytes] = ..., priority: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., generate: _Optional[_Union[GenerateKind, _Mapping]] = ..., pool: _Optional[_Union[_pooling_pb2.Pooling, _Mapping]] = ..., age_ms: _Optional[int] = ..., prompt_blocks: _Optional[_Union[PromptBlocks, _Mapping]] = ..., adapter_sources: _Optional[_Iterable[str]] = ..., predicted_token_ids: _Optional[bytes] = ..., must_be_held: bool = ..., cache_bytes: _Optional[int] = ..., weights: _Optional[_Union[_weights_pb2.WeightsVersion, _Mapping]] = ..., is_traced: bool = ...) -> None: ...

class SubmitBatch(_message.Message):
    __slots__ = ("submits",)
    SUBMITS_FIELD_NUMBER: _ClassVar[int]
    submits: _containers.RepeatedCompositeFieldContainer[Submit]
    def __init__(self, submits: _Optional[_Iterable[_Union[Submit, _Mapping]]] = ...) -> None: ...

class GenerateKind(_message.Message):
    __slots__ = ("beam_search",)
    BEAM_SEARCH_FIELD_NUMBER: _ClassVar[int]
    beam_search: _sampling_pb2.BeamSearch
    def __init__(self, beam_search: _Optional[_Union[_sampling_pb2.BeamSearch, _Mapping]] = ...) -> None: ...

class EmittedTokens(_message.Message):
    __slots__ = ("token_ids", "is_finished")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IS_FINISHED_FIELD_NUMBER: _ClassVar[int]
    token_ids: bytes
    is_finished: bool
    def __init__(self, token_ids: _Optional[bytes] = ..., is_finished: bool = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("handle", "choice")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    handle: int
    choice: int
    def __init__(self, handle: _Optional[int] = ..., choice: _Optional[int] = ...) -> None: ...

class TokenBatch(_message.Message):
    __slots__ = ("handles", "choices", "epochs", "first_positions", "counts", "token_ids", "logprobs", "num_top", "top_token_ids", "top_logprobs", "num_cached_tokens", "ranks")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOP_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    handles: bytes
    choices: bytes
    epochs: bytes
    first_positions: bytes
    counts: bytes
    token_ids: bytes
    logprobs: bytes
    num_top: bytes
    top_token_ids: bytes
    top_logprobs: bytes
    num_cached_tokens: bytes
    ranks: bytes
    def __init__(self, handles: _Optional[bytes] = ..., choices: _Optional[bytes] = ..., epochs: _Optional[bytes] = ..., first_positions: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., token_ids: _Optional[bytes] = ..., logprobs: _Optional[bytes] = ..., num_top: _Optional[bytes] = ..., top_token_ids: _Optional[bytes] = ..., top_logprobs: _Optional[bytes] = ..., num_cached_tokens: _Optional[bytes] = ..., ranks: _Optional[bytes] = ...) -> None: ...

class PromptLogprobBatch(_message.Message):
    __slots__ = ("handles", "epochs", "first_positions", "counts", "logprobs", "ranks", "num_top", "top_token_ids", "top_logprobs")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOP_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    handles: bytes
    epochs: bytes
    first_positions: bytes
    counts: bytes
    logprobs: bytes
    ranks: bytes
    num_top: bytes
    top_token_ids: bytes
    top_logprobs: bytes
    def __init__(self, handles: _Optional[bytes] = ..., epochs: _Optional[bytes] = ..., first_positions: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., logprobs: _Optional[bytes] = ..., ranks: _Optional[bytes] = ..., num_top: _Optional[bytes] = ..., top_token_ids: _Optional[bytes] = ..., top_logprobs: _Optional[bytes] = ...) -> None: ...

class BegunBatch(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[BegunRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[BegunRequest, _Mapping]]] = ...) -> None: ...

class BegunRequest(_message.Message):
    __slots__ = ("handle", "epoch", "weights")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    handle: int
    epoch: int
    weights: _weights_pb2.WeightsVersion
    def __init__(self, handle: _Optional[int] = ..., epoch: _Optional[int] = ..., weights: _Optional[_Union[_weights_pb2.WeightsVersion, _Mapping]] = ...) -> None: ...

class VectorBatch(_message.Message):
    __slots__ = ("handles", "epochs", "num_cached_tokens", "vectors")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    handles: bytes
    epochs: bytes
    num_cached_tokens: bytes
    vectors: bytes
    def __init__(self, handles: _Optional[bytes] = ..., epochs: _Optional[bytes] = ..., num_cached_tokens: _Optional[bytes] = ..., vectors: _Optional[bytes] = ...) -> None: ...

class FinishedChoices(_message.Message):
    __slots__ = ("choices",)
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    choices: _containers.RepeatedCompositeFieldContainer[FinishedChoice]
    def __init__(self, choices: _Optional[_Iterable[_Union[FinishedChoice, _Mapping]]] = ...) -> None: ...

class FinishedChoice(_message.Message):
    __slots__ = ("handle", "choice", "epoch", "num_tokens", "reason", "stop_token_id", "error", "cached_tokens", "num_accepted_predicted", "num_rejected_predicted")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_PREDICTED_FIELD_NUMBER: _ClassVar[int]
    NUM_REJECTED_PREDICTED_FIELD_NUMBER: _ClassVar[int]
    handle: int
    choice: int
    epoch: int
    num_tokens: int
    reason: _sampling_pb2.FinishReason
    stop_token_id: int
    error: _error_pb2.ErrorDetail
    cached_tokens: _containers.RepeatedCompositeFieldContainer[_usage_pb2.CachedTokens]
    num_accepted_predicted: int
    num_rejected_predicted: int
    def __init__(self, handle: _Optional[int] = ..., choice: _Optional[int] = ..., epoch: _Optional[int] = ..., num_tokens: _Optional[int] = ..., reason: _Optional[_Union[_sampling_pb2.FinishReason, str]] = ..., stop_token_id: _Optional[int] = ..., error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ..., cached_tokens: _Optional[_Iterable[_Union[_usage_pb2.CachedTokens, _Mapping]]] = ..., num_accepted_predicted: _Optional[int] = ..., num_rejected_predicted: _Optional[int] = ...) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("handle", "epoch", "error")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    handle: int
    epoch: int
    error: _error_pb2.ErrorDetail
    def __init__(self, handle: _Optional[int] = ..., epoch: _Optional[int] = ..., error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("counter",)
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    counter: int
    def __init__(self, counter: _Optional[int] = ...) -> None: ...

class AuditQuery(_message.Message):
    __slots__ = ("query_id",)
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    def __init__(self, query_id: _Optional[int] = ...) -> None: ...

class FrontendAuditReply(_message.Message):
    __slots__ = ("query_id", "audit")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    audit: _audit_pb2.FrontendAudit
    def __init__(self, query_id: _Optional[int] = ..., audit: _Optional[_Union[_audit_pb2.FrontendAudit, _Mapping]] = ...) -> None: ...

class AuditAnswer(_message.Message):
    __slots__ = ("query_id", "report")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    report: _audit_pb2.AuditReport
    def __init__(self, query_id: _Optional[int] = ..., report: _Optional[_Union[_audit_pb2.AuditReport, _Mapping]] = ...) -> None: ...

class ResetPrefixCacheQuery(_message.Message):
    __slots__ = ("query_id", "model")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    model: str
    def __init__(self, query_id: _Optional[int] = ..., model: _Optional[str] = ...) -> None: ...

class ResetPrefixCacheAnswer(_message.Message):
    __slots__ = ("query_id", "num_blocks")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    num_blocks: int
    def __init__(self, query_id: _Optional[int] = ..., num_blocks: _Optional[int] = ...) -> None: ...

class TimelineBatch(_message.Message):
    __slots__ = ("timelines",)
    TIMELINES_FIELD_NUMBER: _ClassVar[int]
    timelines: _containers.RepeatedCompositeFieldContainer[HandleTimeline]
    def __init__(self, timelines: _Optional[_Iterable[_Union[HandleTimeline, _Mapping]]] = ...) -> None: ...

class HandleTimeline(_message.Message):
    __slots__ = ("handle", "choice", "epoch", "timeline")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    handle: int
    choice: int
    epoch: int
    timeline: _timeline_pb2.ChoiceTimeline
    def __init__(self, handle: _Optional[int] = ..., choice: _Optional[int] = ..., epoch: _Optional[int] = ..., timeline: _Optional[_Union[_timeline_pb2.ChoiceTimeline, _Mapping]] = ...) -> None: ...

class AdminQuery(_message.Message):
    __slots__ = ("query_id", "set_roles", "topology", "self_test", "sleep", "wake_up", "update_weights", "stacks", "ask_worker")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    SET_ROLES_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    SELF_TEST_FIELD_NUMBER: _ClassVar[int]
    SLEEP_FIELD_NUMBER: _ClassVar[int]
    WAKE_UP_FIELD_NUMBER: _ClassVar[int]
    UPDATE_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    ASK_WORKER_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    set_roles: _admin_pb2.SetRolesRequest
    topology: _admin_pb2.TopologyRequest
    self_test: _admin_pb2.SelfTestRequest
    sleep: _admin_pb2.SleepRequest
    wake_up: _admin_pb2.WakeUpRequest
    update_weights: _admin_pb2.UpdateWeightsRequest
    stacks: _admin_pb2.StacksRequest
    ask_worker: WorkerQuestion
    def __init__(self, query_id: _Optional[int] = ..., set_roles: _Optional[_Union[_admin_pb2.SetRolesRequest, _Mapping]] = ..., topology: _Optional[_Union[_admin_pb2.TopologyRequest, _Mapping]] = ..., self_test: _Optional[_Union[_admin_pb2.SelfTestRequest, _Mapping]] = ..., sleep: _Optional[_Union[_admin_pb2.SleepRequest, _Mapping]] = ..., wake_up: _Optional[_Union[_admin_pb2.WakeUpRequest, _Mapping]] = ..., update_weights: _Optional[_Union[_admin_pb2.UpdateWeightsRequest, _Mapping]] = ..., stacks: _Optional[_Union[_admin_pb2.StacksRequest, _Mapping]] = ..., ask_worker: _Optional[_Union[WorkerQuestion, _Mapping]] = ...) -> None: ...

class AdminAnswer(_message.Message):
    __slots__ = ("query_id", "error", "set_roles", "topology", "self_test", "sleep", "wake_up", "update_weights", "stacks", "worker_answer")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SET_ROLES_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    SELF_TEST_FIELD_NUMBER: _ClassVar[int]
    SLEEP_FIELD_NUMBER: _ClassVar[int]
    WAKE_UP_FIELD_NUMBER: _ClassVar[int]
    UPDATE_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ANSWER_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    error: _error_pb2.ErrorDetail
    set_roles: _admin_pb2.SetRolesResponse
    topology: _admin_pb2.TopologyResponse
    self_test: _admin_pb2.SelfTestResponse
    sleep: _admin_pb2.SleepResponse
    wake_up: _admin_pb2.WakeUpResponse
    update_weights: _admin_pb2.UpdateWeightsResponse
    stacks: _admin_pb2.StacksResponse
    worker_answer: _worker_query_pb2.WorkerAnswer
    def __init__(self, query_id: _Optional[int] = ..., error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ..., set_roles: _Optional[_Union[_admin_pb2.SetRolesResponse, _Mapping]] = ..., topology: _Optional[_Union[_admin_pb2.TopologyResponse, _Mapping]] = ..., self_test: _Optional[_Union[_admin_pb2.SelfTestResponse, _Mapping]] = ..., sleep: _Optional[_Union[_admin_pb2.SleepResponse, _Mapping]] = ..., wake_up: _Optional[_Union[_admin_pb2.WakeUpResponse, _Mapping]] = ..., update_weights: _Optional[_Union[_admin_pb2.UpdateWeightsResponse, _Mapping]] = ..., stacks: _Optional[_Union[_admin_pb2.StacksResponse, _Mapping]] = ..., worker_answer: _Optional[_Union[_worker_query_pb2.WorkerAnswer, _Mapping]] = ...) -> None: ...

class Failing(_message.Message):
    __slots__ = ("request_ids",)
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, request_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class WorkerQuestion(_message.Message):
    __slots__ = ("worker", "timeout_ms", "query")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    worker: str
    timeout_ms: int
    query: _worker_query_pb2.WorkerQuery
    def __init__(self, worker: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., query: _Optional[_Union[_worker_query_pb2.WorkerQuery, _Mapping]] = ...) -> None: ...

class StacksQuery(_message.Message):
    __slots__ = ("query_id",)
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    def __init__(self, query_id: _Optional[int] = ...) -> None: ...

class StacksReply(_message.Message):
    __slots__ = ("query_id", "stacks")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    stacks: _stacks_pb2.ProcessStacks
    def __init__(self, query_id: _Optional[int] = ..., stacks: _Optional[_Union[_stacks_pb2.ProcessStacks, _Mapping]] = ...) -> None: ...
