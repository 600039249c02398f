from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StoreAdapterRequest(_message.Message):
    __slots__ = ("begin", "data")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    begin: AdapterBegin
    data: bytes
    def __init__(self, begin: _Optional[_Union[AdapterBegin, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class AdapterBegin(_message.Message):
    __slots__ = ("adapter_id", "num_config_bytes", "num_weight_bytes")
    ADAPTER_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_CONFIG_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    adapter_id: bytes
    num_config_bytes: int
    num_weight_bytes: int
    def __init__(self, adapter_id: _Optional[bytes] = ..., num_config_bytes: _Optional[int] = ..., num_weight_bytes: _Optional[int] = ...) -> None: ...

class StoreAdapterResponse(_message.Message):
    __slots__ = ("wanted", "stored")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    wanted: AdapterWanted
    stored: AdapterStored
    def __init__(self, wanted: _Optional[_Union[AdapterWanted, _Mapping]] = ..., stored: _Optional[_Union[AdapterStored, _Mapping]] = ...) -> None: ...

class AdapterWanted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AdapterStored(_message.Message):
    __slots__ = ("was_there",)
    WAS_THERE_FIELD_NUMBER: _ClassVar[int]
    was_there: bool
    def __init__(self, was_there: bool = ...) -> None: ...
