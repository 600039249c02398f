from pagewire_protos.common.v1 import adapter_shapes_pb2 as _adapter_shapes_pb2
from pagewire_protos.common.v1 import audit_pb2 as _audit_pb2
from pagewire_protos.common.v1 import error_pb2 as _error_pb2
from pagewire_protos.common.v1 import layout_pb2 as _layout_pb2
from pagewire_protos.common.v1 import pooling_pb2 as _pooling_pb2
from pagewire_protos.common.v1 import sampling_pb2 as _sampling_pb2
from pagewire_protos.common.v1 import sleep_pb2 as _sleep_pb2
from pagewire_protos.common.v1 import structured_outputs_pb2 as _structured_outputs_pb2
from pagewire_protos.common.v1 import weights_pb2 as _weights_pb2
from pagewire_protos.common.v1 import worker_query_pb2 as _worker_query_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_ROLE_UNSPECIFIED: _ClassVar[WorkerRole]
    WORKER_ROLE_PREFILL: _ClassVar[WorkerRole]
    WORKER_ROLE_DECODE: _ClassVar[WorkerRole]

class LoadOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOAD_OUTCOME_UNSPECIFIED: _ClassVar[LoadOutcome]
    LOAD_OUTCOME_COMPLETE: _ClassVar[LoadOutcome]
    LOAD_OUTCOME_MISSING: _ClassVar[LoadOutcome]
    LOAD_OUTCOME_LATE: _ClassVar[LoadOutcome]
    LOAD_OUTCOME_FAILED: _ClassVar[LoadOutcome]
    LOAD_OUTCOME_CANCELLED: _ClassVar[LoadOutcome]
WORKER_ROLE_UNSPECIFIED: WorkerRole
WORKER_ROLE_PREFILL: WorkerRole
WORKER_ROLE_DECODE: WorkerRole
LOAD_OUTCOME_UNSPECIFIED: LoadOutcome
LOAD_OUTCOME_COMPLETE: LoadOutcome
LOAD_OUTCOME_MISSING: LoadOutcome
LOAD_OUTCOME_LATE: LoadOutcome
LOAD_OUTCOME_FAILED: LoadOutcome
LOAD_OUTCOME_CANCELLED: LoadOutcome

class AttachWorkerRequest(_message.Message):
    __slots__ = ("hello", "result", "progress", "audit_reply", "leaving", "grammar_compiled", "blocks_loaded", "block_digests", "adapter_loaded", "sleep_changed", "weights_checked", "operator_answer")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    AUDIT_REPLY_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_COMPILED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_LOADED_FIELD_NUMBER: _ClassVar[int]
    BLOCK_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_LOADED_FIELD_NUMBER: _ClassVar[int]
    SLEEP_CHANGED_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_CHECKED_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_ANSWER_FIELD_NUMBER: _ClassVar[int]
    hello: WorkerHello
    result: StepResult
    progress: WorkerProgress
    audit_reply: WorkerAuditReply
    leaving: WorkerLeaving
    grammar_compiled: GrammarCompiled
    blocks_loaded: BlocksLoaded
    block_digests: BlockDigests
    adapter_loaded: AdapterLoaded
    sleep_changed: _sleep_pb2.WorkerSleep
    weights_checked: WeightsChecked
    operator_answer: OperatorAnswer
    def __init__(self, hello: _Optional[_Union[WorkerHello, _Mapping]] = ..., result: _Optional[_Union[StepResult, _Mapping]] = ..., progress: _Optional[_Union[WorkerProgress, _Mapping]] = ..., audit_reply: _Optional[_Union[WorkerAuditReply, _Mapping]] = ..., leaving: _Optional[_Union[WorkerLeaving, _Mapping]] = ..., grammar_compiled: _Optional[_Union[GrammarCompiled, _Mapping]] = ..., blocks_loaded: _Optional[_Union[BlocksLoaded, _Mapping]] = ..., block_digests: _Optional[_Union[BlockDigests, _Mapping]] = ..., adapter_loaded: _Optional[_Union[AdapterLoaded, _Mapping]] = ..., sleep_changed: _Optional[_Union[_sleep_pb2.WorkerSleep, _Mapping]] = ..., weights_checked: _Optional[_Union[WeightsChecked, _Mapping]] = ..., operator_answer: _Optional[_Union[OperatorAnswer, _Mapping]] = ...) -> None: ...

class AttachWorkerResponse(_message.Message):
    __slots__ = ("welcome", "plan", "audit_query", "drain", "compile_grammar", "load_blocks", "cancel_load", "set_roles", "block_digest_query", "load_adapter", "sleep", "wake", "check_weights", "update", "operator_query")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    AUDIT_QUERY_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    COMPILE_GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    LOAD_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_LOAD_FIELD_NUMBER: _ClassVar[int]
    SET_ROLES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_DIGEST_QUERY_FIELD_NUMBER: _ClassVar[int]
    LOAD_ADAPTER_FIELD_NUMBER: _ClassVar[int]
    SLEEP_FIELD_NUMBER: _ClassVar[int]
    WAKE_FIELD_NUMBER: _ClassVar[int]
    CHECK_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_QUERY_FIELD_NUMBER: _ClassVar[int]
    welcome: WorkerWelcome
    plan: StepPlan
    audit_query: WorkerAuditQuery
    drain: WorkerDrain
    compile_grammar: CompileGrammar
    load_blocks: LoadBlocks
    cancel_load: CancelLoad
    set_roles: SetWorkerRoles
    block_digest_query: BlockDigestQuery
    load_adapter: LoadAdapter
    sleep: SleepOrder
    wake: WakeOrder
    check_weights: CheckWeights
    update: UpdateOrder
    operator_query: OperatorQuery
    def __init__(self, welcome: _Optional[_Union[WorkerWelcome, _Mapping]] = ..., plan: _Optional[_Union[StepPlan, _Mapping]] = ..., audit_query: _Optional[_Union[WorkerAuditQuery, _Mapping]] = ..., drain: _Optional[_Union[WorkerDrain, _Mapping]] = ..., compile_grammar: _Optional[_Union[CompileGrammar, _Mapping]] = ..., load_blocks: _Optional[_Union[LoadBlocks, _Mapping]] = ..., cancel_load: _Optional[_Union[CancelLoad, _Mapping]] = ..., set_roles: _Optional[_Union[SetWorkerRoles, _Mapping]] = ..., block_digest_query: _Optional[_Union[BlockDigestQuery, _Mapping]] = ..., load_adapter: _Optional[_Union[LoadAdapter, _Mapping]] = ..., sleep: _Optional[_Union[SleepOrder, _Mapping]] = ..., wake: _Optional[_Union[WakeOrder, _Mapping]] = ..., check_weights: _Optional[_Union[CheckWeights, _Mapping]] = ..., update: _Optional[_Union[UpdateOrder, _Mapping]] = ..., operator_query: _Optional[_Union[OperatorQuery, _Mapping]] = ...) -> None: ...

class WorkerHello(_message.Message):
    __slots__ = ("protocol", "worker_id", "incarnation", "highest_generation", "model", "tokenizer_fingerprint", "layout", "capacity", "roles", "kv_endpoints", "held_names", "held_blocks", "loads_blocks", "kv_transports", "pull_transports", "host_id", "takes_prefixes", "cell", "warm_adapters", "adapter_shapes", "sleep", "can_sleep", "sleep_after_ms", "is_exact", "places_copies", "outside_store", "weights", "weights_failure")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_GENERATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    KV_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    HELD_NAMES_FIELD_NUMBER: _ClassVar[int]
    HELD_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LOADS_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    KV_TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    PULL_TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    TAKES_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    WARM_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_SHAPES_FIELD_NUMBER: _ClassVar[int]
    SLEEP_FIELD_NUMBER: _ClassVar[int]
    CAN_SLEEP_FIELD_NUMBER: _ClassVar[int]
    SLEEP_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    IS_EXACT_FIELD_NUMBER: _ClassVar[int]
    PLACES_COPIES_FIELD_NUMBER: _ClassVar[int]
    OUTSIDE_STORE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FAILURE_FIELD_NUMBER: _ClassVar[int]
    protocol: _layout_pb2.ProtocolRange
    worker_id: bytes
    incarnation: int
    highest_generation: int
    model: str
    tokenizer_fingerprint: bytes
    layout: _layout_pb2.KvLayout
    capacity: WorkerCapacity
    roles: _containers.RepeatedScalarFieldContainer[WorkerRole]
    kv_endpoints: _containers.RepeatedScalarFieldContainer[str]
    held_names: bytes
    held_blocks: bytes
    loads_blocks: bool
    kv_transports: _containers.RepeatedScalarFieldContainer[_layout_pb2.KvTransport]
    pull_transports: _containers.RepeatedScalarFieldContainer[_layout_pb2.KvTransport]
    host_id: str
    takes_prefixes: bool
    cell: str
    warm_adapters: bytes
    adapter_shapes: _adapter_shapes_pb2.AdapterShapes
    sleep: _sleep_pb2.WorkerSleep
    can_sleep: bool
    sleep_after_ms: int
    is_exact: bool
    places_copies: bool
    outside_store: str
    weights: _weights_pb2.WeightsSource
    weights_failure: WeightsFailure
    def __init__(self, protocol: _Optional[_Union[_layout_pb2.ProtocolRange, _Mapping]] = ..., worker_id: _Optional[bytes] = ..., incarnation: _Optional[int] = ..., highest_generation: _Optional[int] = ..., model: _Optional[str] = ..., tokenizer_fingerprint: _Optional[bytes] = ..., layout: _Optional[_Union[_layout_pb2.KvLayout, _Mapping]] = ..., capacity: _Optional[_Union[WorkerCapacity, _Mapping]] = ..., roles: _Optional[_Iterable[_Union[WorkerRole, str]]] = ..., kv_endpoints: _Optional[_Iterable[str]] = ..., held_names: _Optional[bytes] = ..., held_blocks: _Optional[bytes] = ..., loads_blocks: bool = ..., kv_transports: _Optional[_Iterable[_Union[_layout_pb2.KvTransport, str]]] = ..., pull_transports: _Optional[_Iterable[_Union[_layout_pb2.KvTransport, str]]] = ..., host_id: _Optional[str] = ..., takes_prefixes: bool = ..., cell: _Optional[str] = ..., warm_adapters: _Optional[bytes] = ..., adapter_shapes: _Optional[_Union[_adapter_shapes_pb2.AdapterShapes, _Mapping]] = ..., sleep: _Optional[_Union[_sleep_pb2.WorkerSleep, _Mapping]] = ..., can_sleep: bool = ..., sleep_after_ms: _Optional[int] = ..., is_exact: bool = ..., places_copies: bool = ..., outside_store: _Optional[str] = ..., weights: _Optional[_Union[_weights_pb2.WeightsSource, _Mapping]] = ..., weights_failure: _Optional[_Union[WeightsFailure, _Mapping]] = ...) -> None: ...

class WeightsFailure(_message.Message):
    __slots__ = ("serial", "error")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    serial: int
    error: _error_pb2.ErrorDetail
    def __init__(self, serial: _Optional[int] = ..., error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class WorkerCapacity(_message.Message):
    __slots__ = ("num_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "steps_in_flight", "vocab_size", "embedding_size", "shared_step_tokens", "num_labels", "is_encoder", "max_adapters", "max_adapter_rank", "max_drafts")
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_BATCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    STEPS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHARED_STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_LABELS_FIELD_NUMBER: _ClassVar[int]
    IS_ENCODER_FIELD_NUMBER: _ClassVar[int]
    MAX_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    MAX_ADAPTER_RANK_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    steps_in_flight: int
    vocab_size: int
    embedding_size: int
    shared_step_tokens: int
    num_labels: int
    is_encoder: bool
    max_adapters: int
    max_adapter_rank: int
    max_drafts: int
    def __init__(self, num_blocks: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., max_num_batched_tokens: _Optional[int] = ..., max_model_len: _Optional[int] = ..., steps_in_flight: _Optional[int] = ..., vocab_size: _Optional[int] = ..., embedding_size: _Optional[int] = ..., shared_step_tokens: _Optional[int] = ..., num_labels: _Optional[int] = ..., is_encoder: bool = ..., max_adapters: _Optional[int] = ..., max_adapter_rank: _Optional[int] = ..., max_drafts: _Optional[int] = ...) -> None: ...

class WorkerWelcome(_message.Message):
    __slots__ = ("protocol", "generation", "kvstore_addresses", "cell", "kvstore_copies")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KVSTORE_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    KVSTORE_COPIES_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    generation: int
    kvstore_addresses: _containers.RepeatedScalarFieldContainer[str]
    cell: str
    kvstore_copies: int
    def __init__(self, protocol: _Optional[int] = ..., generation: _Optional[int] = ..., kvstore_addresses: _Optional[_Iterable[str]] = ..., cell: _Optional[str] = ..., kvstore_copies: _Optional[int] = ...) -> None: ...

class StepPlan(_message.Message):
    __slots__ = ("generation", "incarnation", "step_id", "freed_slots", "new_requests", "slots", "starts", "num_new_tokens", "samples", "num_new_blocks", "new_block_ids", "copy_sources", "copy_destinations", "named_blocks", "names", "fork_slots", "fork_sources", "fork_choices", "appended_slots", "appended_token_ids", "copy_slots", "released_grammars", "named_slots", "num_drafts", "named_stripes")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    FREED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NEW_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    NUM_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    NUM_NEW_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NEW_BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    COPY_SOURCES_FIELD_NUMBER: _ClassVar[int]
    COPY_DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    NAMED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    FORK_SLOTS_FIELD_NUMBER: _ClassVar[int]
    FORK_SOURCES_FIELD_NUMBER: _ClassVar[int]
    FORK_CHOICES_FIELD_NUMBER: _ClassVar[int]
    APPENDED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    APPENDED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    COPY_SLOTS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_GRAMMARS_FIELD_NUMBER: _ClassVar[int]
    NAMED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    NAMED_STRIPES_FIELD_NUMBER: _ClassVar[int]
    generation: int
    incarnation: int
    step_id: int
    freed_slots: bytes
    new_requests: _containers.RepeatedCompositeFieldContainer[NewRequest]
    slots: bytes
    starts: bytes
    num_new_tokens: bytes
    samples: bytes
    num_new_blocks: bytes
    new_block_ids: bytes
    copy_sources: bytes
    copy_destinations: bytes
    named_blocks: bytes
    names: bytes
    fork_slots: bytes
    fork_sources: bytes
    fork_choices: bytes
    appended_slots: bytes
    appended_token_ids: bytes
    copy_slots: bytes
    released_grammars: bytes
    named_slots: bytes
    num_drafts: bytes
    named_stripes: bytes
    def __init__(self, generation: _Optional[int] = ..., incarnation: _Optional[int] = ..., step_id: _Optional[int] = ..., freed_slots: _Optional[bytes] = ..., new_requests: _Optional[_Iterable[_Union[NewRequest, _Mapping]]] = ..., slots: _Optional[bytes] = ..., starts: _Optional[bytes] = ..., num_new_tokens: _Optional[bytes] = ..., samples: _Optional[bytes] = ..., num_new_blocks: _Optional[bytes] = ..., new_block_ids: _Optional[bytes] = ..., copy_sources: _Optional[bytes] = ..., copy_destinations: _Optional[bytes] = ..., named_blocks: _Optional[bytes] = ..., names: _Optional[bytes] = ..., fork_slots: _Optional[bytes] = ..., fork_sources: _Optional[bytes] = ..., fork_choices: _Optional[bytes] = ..., appended_slots: _Optional[bytes] = ..., appended_token_ids: _Optional[bytes] = ..., copy_slots: _Optional[bytes] = ..., released_grammars: _Optional[bytes] = ..., named_slots: _Optional[bytes] = ..., num_drafts: _Optional[bytes] = ..., named_stripes: _Optional[bytes] = ...) -> None: ...

class NewRequest(_message.Message):
    __slots__ = ("slot", "request_id", "choice", "prompt_token_ids", "emitted_token_ids", "sampling", "block_tables", "eos_token_ids", "is_beam", "grammar_id", "pooling", "tenant", "prefix_slot", "num_prefix_tokens", "adapter_slot", "draft_scope", "predicted_token_ids")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    EMITTED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TABLES_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IS_BEAM_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_ID_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PREFIX_SLOT_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFIX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_SLOT_FIELD_NUMBER: _ClassVar[int]
    DRAFT_SCOPE_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    request_id: bytes
    choice: int
    prompt_token_ids: bytes
    emitted_token_ids: bytes
    sampling: _sampling_pb2.SamplingParams
    block_tables: _containers.RepeatedCompositeFieldContainer[BlockTable]
    eos_token_ids: bytes
    is_beam: bool
    grammar_id: bytes
    pooling: _pooling_pb2.Pooling
    tenant: str
    prefix_slot: int
    num_prefix_tokens: int
    adapter_slot: int
    draft_scope: bytes
    predicted_token_ids: bytes
    def __init__(self, slot: _Optional[int] = ..., request_id: _Optional[bytes] = ..., choice: _Optional[int] = ..., prompt_token_ids: _Optional[bytes] = ..., emitted_token_ids: _Optional[bytes] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParams, _Mapping]] = ..., block_tables: _Optional[_Iterable[_Union[BlockTable, _Mapping]]] = ..., eos_token_ids: _Optional[bytes] = ..., is_beam: bool = ..., grammar_id: _Optional[bytes] = ..., pooling: _Optional[_Union[_pooling_pb2.Pooling, _Mapping]] = ..., tenant: _Optional[str] = ..., prefix_slot: _Optional[int] = ..., num_prefix_tokens: _Optional[int] = ..., adapter_slot: _Optional[int] = ..., draft_scope: _Optional[bytes] = ..., predicted_token_ids: _Optional[bytes] = ...) -> None: ...

class BlockTable(_message.Message):
    __slots__ = ("block_ids", "num_before")
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_BEFORE_FIELD_NUMBER: _ClassVar[int]
    block_ids: bytes
    num_before: int
    def __init__(self, block_ids: _Optional[bytes] = ..., num_before: _Optional[int] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("generation", "incarnation", "step_id", "slots", "counts", "token_ids", "logprobs", "num_top", "top_token_ids", "top_logprobs", "failure", "model_time_us", "step_time_us", "ranks", "prompt", "vectors", "given_up_slots", "given_up_reasons", "failed_slots", "failed_reason", "num_drafts", "num_predicted")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOP_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    MODEL_TIME_US_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_US_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_SLOTS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_REASONS_FIELD_NUMBER: _ClassVar[int]
    FAILED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREDICTED_FIELD_NUMBER: _ClassVar[int]
    generation: int
    incarnation: int
    step_id: int
    slots: bytes
    counts: bytes
    token_ids: bytes
    logprobs: bytes
    num_top: bytes
    top_token_ids: bytes
    top_logprobs: bytes
    failure: StepFailure
    model_time_us: int
    step_time_us: int
    ranks: bytes
    prompt: PromptLogprobs
    vectors: bytes
    given_up_slots: bytes
    given_up_reasons: _containers.RepeatedScalarFieldContainer[str]
    failed_slots: bytes
    failed_reason: str
    num_drafts: bytes
    num_predicted: bytes
    def __init__(self, generation: _Optional[int] = ..., incarnation: _Optional[int] = ..., step_id: _Optional[int] = ..., slots: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., token_ids: _Optional[bytes] = ..., logprobs: _Optional[bytes] = ..., num_top: _Optional[bytes] = ..., top_token_ids: _Optional[bytes] = ..., top_logprobs: _Optional[bytes] = ..., failure: _Optional[_Union[StepFailure, _Mapping]] = ..., model_time_us: _Optional[int] = ..., step_time_us: _Optional[int] = ..., ranks: _Optional[bytes] = ..., prompt: _Optional[_Union[PromptLogprobs, _Mapping]] = ..., vectors: _Optional[bytes] = ..., given_up_slots: _Optional[bytes] = ..., given_up_reasons: _Optional[_Iterable[str]] = ..., failed_slots: _Optional[bytes] = ..., failed_reason: _Optional[str] = ..., num_drafts: _Optional[bytes] = ..., num_predicted: _Optional[bytes] = ...) -> None: ...

class PromptLogprobs(_message.Message):
    __slots__ = ("slots", "first_positions", "counts", "logprobs", "ranks", "num_top", "top_token_ids", "top_logprobs")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOP_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    slots: bytes
    first_positions: bytes
    counts: bytes
    logprobs: bytes
    ranks: bytes
    num_top: bytes
    top_token_ids: bytes
    top_logprobs: bytes
    def __init__(self, slots: _Optional[bytes] = ..., first_positions: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., logprobs: _Optional[bytes] = ..., ranks: _Optional[bytes] = ..., num_top: _Optional[bytes] = ..., top_token_ids: _Optional[bytes] = ..., top_logprobs: _Optional[bytes] = ...) -> None: ...

class StepFailure(_message.Message):
    __slots__ = ("message", "culprit_slots")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    message: str
    culprit_slots: bytes
    def __init__(self, message: _Optional[str] = ..., culprit_slots: _Optional[bytes] = ...) -> None: ...

class CompileGrammar(_message.Message):
    __slots__ = ("grammar_id", "structured_outputs")
    GRAMMAR_ID_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    grammar_id: bytes
    structured_outputs: _structured_outputs_pb2.StructuredOutputs
    def __init__(self, grammar_id: _Optional[bytes] = ..., structured_outputs: _Optional[_Union[_structured_outputs_pb2.StructuredOutputs, _Mapping]] = ...) -> None: ...

class GrammarCompiled(_message.Message):
    __slots__ = ("grammar_id", "error")
    GRAMMAR_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    grammar_id: bytes
    error: _error_pb2.ErrorDetail
    def __init__(self, grammar_id: _Optional[bytes] = ..., error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class LoadAdapter(_message.Message):
    __slots__ = ("load_id", "adapter_id", "adapter_slot", "sources", "timeout_ms")
    LOAD_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_SLOT_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    load_id: int
    adapter_id: bytes
    adapter_slot: int
    sources: _containers.RepeatedScalarFieldContainer[str]
    timeout_ms: int
    def __init__(self, load_id: _Optional[int] = ..., adapter_id: _Optional[bytes] = ..., adapter_slot: _Optional[int] = ..., sources: _Optional[_Iterable[str]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class AdapterLoaded(_message.Message):
    __slots__ = ("load_id", "error", "was_warm")
    LOAD_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WAS_WARM_FIELD_NUMBER: _ClassVar[int]
    load_id: int
    error: _error_pb2.ErrorDetail
    was_warm: bool
    def __init__(self, load_id: _Optional[int] = ..., error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ..., was_warm: bool = ...) -> None: ...

class LoadBlocks(_message.Message):
    __slots__ = ("load_id", "kvstore_address", "names", "blocks", "timeout_ms", "worker", "copies")
    LOAD_ID_FIELD_NUMBER: _ClassVar[int]
    KVSTORE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    load_id: int
    kvstore_address: str
    names: bytes
    blocks: bytes
    timeout_ms: int
    worker: WorkerSource
    copies: BlockCopies
    def __init__(self, load_id: _Optional[int] = ..., kvstore_address: _Optional[str] = ..., names: _Optional[bytes] = ..., blocks: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ..., worker: _Optional[_Union[WorkerSource, _Mapping]] = ..., copies: _Optional[_Union[BlockCopies, _Mapping]] = ...) -> None: ...

class BlockCopies(_message.Message):
    __slots__ = ("stores", "holders", "stripes", "tenant")
    STORES_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    STRIPES_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    stores: _containers.RepeatedScalarFieldContainer[str]
    holders: bytes
    stripes: bytes
    tenant: str
    def __init__(self, stores: _Optional[_Iterable[str]] = ..., holders: _Optional[bytes] = ..., stripes: _Optional[bytes] = ..., tenant: _Optional[str] = ...) -> None: ...

class WorkerSource(_message.Message):
    __slots__ = ("address", "worker_id")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    address: str
    worker_id: bytes
    def __init__(self, address: _Optional[str] = ..., worker_id: _Optional[bytes] = ...) -> None: ...

class CancelLoad(_message.Message):
    __slots__ = ("load_id",)
    LOAD_ID_FIELD_NUMBER: _ClassVar[int]
    load_id: int
    def __init__(self, load_id: _Optional[int] = ...) -> None: ...

class BlocksLoaded(_message.Message):
    __slots__ = ("load_id", "num_blocks", "outcome", "num_bytes", "time_us", "tiers", "transport", "transfer_us", "parts")
    LOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_US_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    load_id: int
    num_blocks: int
    outcome: LoadOutcome
    num_bytes: int
    time_us: int
    tiers: _containers.RepeatedCompositeFieldContainer[LoadedFromTier]
    transport: _layout_pb2.KvTransport
    transfer_us: int
    parts: _containers.RepeatedCompositeFieldContainer[StorePart]
    def __init__(self, load_id: _Optional[int] = ..., num_blocks: _Optional[int] = ..., outcome: _Optional[_Union[LoadOutcome, str]] = ..., num_bytes: _Optional[int] = ..., time_us: _Optional[int] = ..., tiers: _Optional[_Iterable[_Union[LoadedFromTier, _Mapping]]] = ..., transport: _Optional[_Union[_layout_pb2.KvTransport, str]] = ..., transfer_us: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[StorePart, _Mapping]]] = ...) -> None: ...

class StorePart(_message.Message):
    __slots__ = ("store", "num_bytes", "time_us", "outcome", "missing")
    STORE_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    store: int
    num_bytes: int
    time_us: int
    outcome: LoadOutcome
    missing: bytes
    def __init__(self, store: _Optional[int] = ..., num_bytes: _Optional[int] = ..., time_us: _Optional[int] = ..., outcome: _Optional[_Union[LoadOutcome, str]] = ..., missing: _Optional[bytes] = ...) -> None: ...

class LoadedFromTier(_message.Message):
    __slots__ = ("tier", "num_blocks")
    TIER_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    tier: str
    num_blocks: int
    def __init__(self, tier: _Optional[str] = ..., num_blocks: _Optional[int] = ...) -> None: ...

class WorkerProgress(_message.Message):
    __slots__ = ("counter",)
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    counter: int
    def __init__(self, counter: _Optional[int] = ...) -> None: ...

class WorkerAuditQuery(_message.Message):
    __slots__ = ("query_id",)
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    def __init__(self, query_id: _Optional[int] = ...) -> None: ...

class WorkerAuditReply(_message.Message):
    __slots__ = ("query_id", "audit", "slots")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    audit: _audit_pb2.WorkerAudit
    slots: bytes
    def __init__(self, query_id: _Optional[int] = ..., audit: _Optional[_Union[_audit_pb2.WorkerAudit, _Mapping]] = ..., slots: _Optional[bytes] = ...) -> None: ...

class WorkerDrain(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkerLeaving(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SleepOrder(_message.Message):
    __slots__ = ("level", "wakes_on_request")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    WAKES_ON_REQUEST_FIELD_NUMBER: _ClassVar[int]
    level: int
    wakes_on_request: bool
    def __init__(self, level: _Optional[int] = ..., wakes_on_request: bool = ...) -> None: ...

class WakeOrder(_message.Message):
    __slots__ = ("tags",)
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[_sleep_pb2.MemoryTag]
    def __init__(self, tags: _Optional[_Iterable[_Union[_sleep_pb2.MemoryTag, str]]] = ...) -> None: ...

class SetWorkerRoles(_message.Message):
    __slots__ = ("roles",)
    ROLES_FIELD_NUMBER: _ClassVar[int]
    roles: _containers.RepeatedScalarFieldContainer[WorkerRole]
    def __init__(self, roles: _Optional[_Iterable[_Union[WorkerRole, str]]] = ...) -> None: ...

class BlockDigestQuery(_message.Message):
    __slots__ = ("query_id", "names")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    names: bytes
    def __init__(self, query_id: _Optional[int] = ..., names: _Optional[bytes] = ...) -> None: ...

class BlockDigests(_message.Message):
    __slots__ = ("query_id", "digests")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    digests: bytes
    def __init__(self, query_id: _Optional[int] = ..., digests: _Optional[bytes] = ...) -> None: ...

class CheckWeights(_message.Message):
    __slots__ = ("query_id", "path")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    path: str
    def __init__(self, query_id: _Optional[int] = ..., path: _Optional[str] = ...) -> None: ...

class WeightsChecked(_message.Message):
    __slots__ = ("query_id", "fingerprint", "error")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    fingerprint: bytes
    error: _error_pb2.ErrorDetail
    def __init__(self, query_id: _Optional[int] = ..., fingerprint: _Optional[bytes] = ..., error: _Optional[_Union[_error_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class UpdateOrder(_message.Message):
    __slots__ = ("source", "fingerprint")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    source: _weights_pb2.WeightsSource
    fingerprint: bytes
    def __init__(self, source: _Optional[_Union[_weights_pb2.WeightsSource, _Mapping]] = ..., fingerprint: _Optional[bytes] = ...) -> None: ...

class OperatorQuery(_message.Message):
    __slots__ = ("query_id", "query")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    query: _worker_query_pb2.WorkerQuery
    def __init__(self, query_id: _Optional[int] = ..., query: _Optional[_Union[_worker_query_pb2.WorkerQuery, _Mapping]] = ...) -> None: ...

class OperatorAnswer(_message.Message):
    __slots__ = ("query_id", "answer")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    query_id: int
    answer: _worker_query_pb2.WorkerAnswer
    def __init__(self, query_id: _Optional[int] = ..., answer: _Optional[_Union[_worker_query_pb2.WorkerAnswer, _Mapping]] = ...) -> None: ...
