from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class CachedTokens(_message.Message):
    __slots__ = ("tier", "num_tokens")
    TIER_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    tier: str
    num_tokens: int
    def __init__(self, tier: _Optional[str] = ..., num_tokens: _Optional[int] = ...) -> None: ...
