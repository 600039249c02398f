from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class UpdateMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UPDATE_MODE_UNSPECIFIED: _ClassVar[UpdateMode]
    UPDATE_MODE_WAIT: _ClassVar[UpdateMode]
    UPDATE_MODE_ABORT: _ClassVar[UpdateMode]
UPDATE_MODE_UNSPECIFIED: UpdateMode
UPDATE_MODE_WAIT: UpdateMode
UPDATE_MODE_ABORT: UpdateMode

class WeightsVersion(_message.Message):
    __slots__ = ("fingerprint", "fingerprint_version", "label")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    fingerprint: bytes
    fingerprint_version: int
    label: str
    def __init__(self, fingerprint: _Optional[bytes] = ..., fingerprint_version: _Optional[int] = ..., label: _Optional[str] = ...) -> None: ...

class WeightsSource(_message.Message):
    __slots__ = ("path", "label", "serial")
    PATH_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    path: str
    label: str
    serial: int
    def __init__(self, path: _Optional[str] = ..., label: _Optional[str] = ..., serial: _Optional[int] = ...) -> None: ...
