from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchAdapterRequest(_message.Message):
    __slots__ = ("adapter_id",)
    ADAPTER_ID_FIELD_NUMBER: _ClassVar[int]
    adapter_id: bytes
    def __init__(self, adapter_id: _Optional[bytes] = ...) -> None: ...

class FetchAdapterResponse(_message.Message):
    __slots__ = ("file", "data")
    FILE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    file: AdapterFile
    data: bytes
    def __init__(self, file: _Optional[_Union[AdapterFile, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class AdapterFile(_message.Message):
    __slots__ = ("name", "num_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_bytes: int
    def __init__(self, name: _Optional[str] = ..., num_bytes: _Optional[int] = ...) -> None: ...
