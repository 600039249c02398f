from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AdapterShapes(_message.Message):
    __slots__ = ("targets", "refusals", "has_alternating_gates", "slot_bytes", "value_bytes", "outer")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    HAS_ALTERNATING_GATES_FIELD_NUMBER: _ClassVar[int]
    SLOT_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTER_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[AdapterTarget]
    refusals: _containers.RepeatedCompositeFieldContainer[AdapterRefusal]
    has_alternating_gates: bool
    slot_bytes: int
    value_bytes: int
    outer: _containers.RepeatedCompositeFieldContainer[AdapterTarget]
    def __init__(self, targets: _Optional[_Iterable[_Union[AdapterTarget, _Mapping]]] = ..., refusals: _Optional[_Iterable[_Union[AdapterRefusal, _Mapping]]] = ..., has_alternating_gates: bool = ..., slot_bytes: _Optional[int] = ..., value_bytes: _Optional[int] = ..., outer: _Optional[_Iterable[_Union[AdapterTarget, _Mapping]]] = ...) -> None: ...

class AdapterTarget(_message.Message):
    __slots__ = ("name", "num_inputs", "num_outputs", "layers", "num_experts", "stack")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_INPUTS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    NUM_EXPERTS_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_inputs: int
    num_outputs: int
    layers: _containers.RepeatedScalarFieldContainer[int]
    num_experts: int
    stack: str
    def __init__(self, name: _Optional[str] = ..., num_inputs: _Optional[int] = ..., num_outputs: _Optional[int] = ..., layers: _Optional[_Iterable[int]] = ..., num_experts: _Optional[int] = ..., stack: _Optional[str] = ...) -> None: ...

class AdapterRefusal(_message.Message):
    __slots__ = ("part", "reason")
    PART_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    part: str
    reason: str
    def __init__(self, part: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
