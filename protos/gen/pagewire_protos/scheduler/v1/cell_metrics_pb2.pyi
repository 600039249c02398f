from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CellMetrics(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelMetrics]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelMetrics, _Mapping]]] = ...) -> None: ...

class ModelMetrics(_message.Message):
    __slots__ = ("model", "num_running", "num_waiting_for_capacity", "num_waiting_for_grammar", "num_waiting_for_kv", "num_waiting_for_trial", "num_workers", "num_blocks", "num_used_blocks", "block_size", "steps_by_tokens", "num_step_tokens", "num_waiting_for_adapter")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FOR_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FOR_GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FOR_KV_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FOR_TRIAL_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_USED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    STEPS_BY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FOR_ADAPTER_FIELD_NUMBER: _ClassVar[int]
    model: str
    num_running: int
    num_waiting_for_capacity: int
    num_waiting_for_grammar: int
    num_waiting_for_kv: int
    num_waiting_for_trial: int
    num_workers: int
    num_blocks: int
    num_used_blocks: int
    block_size: int
    steps_by_tokens: _containers.RepeatedScalarFieldContainer[int]
    num_step_tokens: int
    num_waiting_for_adapter: int
    def __init__(self, model: _Optional[str] = ..., num_running: _Optional[int] = ..., num_waiting_for_capacity: _Optional[int] = ..., num_waiting_for_grammar: _Optional[int] = ..., num_waiting_for_kv: _Optional[int] = ..., num_waiting_for_trial: _Optional[int] = ..., num_workers: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_used_blocks: _Optional[int] = ..., block_size: _Optional[int] = ..., steps_by_tokens: _Optional[_Iterable[int]] = ..., num_step_tokens: _Optional[int] = ..., num_waiting_for_adapter: _Optional[int] = ...) -> None: ...
