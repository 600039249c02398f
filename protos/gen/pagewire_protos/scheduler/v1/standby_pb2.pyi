from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("active_generation", "highest_generation", "asks")
    ACTIVE_GENERATION_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_GENERATION_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    active_generation: int
    highest_generation: int
    asks: bool
    def __init__(self, active_generation: _Optional[int] = ..., highest_generation: _Optional[int] = ..., asks: bool = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("cell", "generation")
    CELL_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    cell: str
    generation: int
    def __init__(self, cell: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...
