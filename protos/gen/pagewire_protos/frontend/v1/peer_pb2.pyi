from pagewire_protos.frontend.v1 import explain_pb2 as _explain_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetResponseRequest(_message.Message):
    __slots__ = ("response_id", "tenant")
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    response_id: str
    tenant: str
    def __init__(self, response_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class GetResponseResponse(_message.Message):
    __slots__ = ("body",)
    BODY_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    def __init__(self, body: _Optional[bytes] = ...) -> None: ...

class CancelResponseRequest(_message.Message):
    __slots__ = ("response_id", "tenant")
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    response_id: str
    tenant: str
    def __init__(self, response_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class CancelResponseResponse(_message.Message):
    __slots__ = ("body",)
    BODY_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    def __init__(self, body: _Optional[bytes] = ...) -> None: ...

class DeleteResponseRequest(_message.Message):
    __slots__ = ("response_id", "tenant")
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    response_id: str
    tenant: str
    def __init__(self, response_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class DeleteResponseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListInputItemsRequest(_message.Message):
    __slots__ = ("response_id", "tenant")
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    response_id: str
    tenant: str
    def __init__(self, response_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class ListInputItemsResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: bytes
    def __init__(self, items: _Optional[bytes] = ...) -> None: ...

class GetConversationRequest(_message.Message):
    __slots__ = ("response_id", "tenant")
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    response_id: str
    tenant: str
    def __init__(self, response_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class GetConversationResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: bytes
    def __init__(self, items: _Optional[bytes] = ...) -> None: ...

class FollowEventsRequest(_message.Message):
    __slots__ = ("response_id", "tenant", "first")
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    response_id: str
    tenant: str
    first: int
    def __init__(self, response_id: _Optional[str] = ..., tenant: _Optional[str] = ..., first: _Optional[int] = ...) -> None: ...

class FollowEventsResponse(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, frames: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FollowStreamRequest(_message.Message):
    __slots__ = ("stream_id", "tenant", "first")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    tenant: str
    first: int
    def __init__(self, stream_id: _Optional[str] = ..., tenant: _Optional[str] = ..., first: _Optional[int] = ...) -> None: ...

class FollowStreamResponse(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, frames: _Optional[_Iterable[bytes]] = ...) -> None: ...

class DropStreamRequest(_message.Message):
    __slots__ = ("stream_id", "tenant")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    tenant: str
    def __init__(self, stream_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class DropStreamResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClaimKeyRequest(_message.Message):
    __slots__ = ("key", "tenant", "stream_id", "digest", "instead_of")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    INSTEAD_OF_FIELD_NUMBER: _ClassVar[int]
    key: str
    tenant: str
    stream_id: str
    digest: bytes
    instead_of: str
    def __init__(self, key: _Optional[str] = ..., tenant: _Optional[str] = ..., stream_id: _Optional[str] = ..., digest: _Optional[bytes] = ..., instead_of: _Optional[str] = ...) -> None: ...

class ClaimKeyResponse(_message.Message):
    __slots__ = ("stream_id", "digest")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    digest: bytes
    def __init__(self, stream_id: _Optional[str] = ..., digest: _Optional[bytes] = ...) -> None: ...

class KeepRecipeRequest(_message.Message):
    __slots__ = ("stream_id", "tenant", "key_digest", "path", "body", "secret", "created", "digest", "numerics", "cached_tokens", "maker_name")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    KEY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAKER_NAME_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    tenant: str
    key_digest: bytes
    path: str
    body: bytes
    secret: bytes
    created: int
    digest: bytes
    numerics: bytes
    cached_tokens: _containers.RepeatedScalarFieldContainer[int]
    maker_name: str
    def __init__(self, stream_id: _Optional[str] = ..., tenant: _Optional[str] = ..., key_digest: _Optional[bytes] = ..., path: _Optional[str] = ..., body: _Optional[bytes] = ..., secret: _Optional[bytes] = ..., created: _Optional[int] = ..., digest: _Optional[bytes] = ..., numerics: _Optional[bytes] = ..., cached_tokens: _Optional[_Iterable[int]] = ..., maker_name: _Optional[str] = ...) -> None: ...

class KeepRecipeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NoteUsageRequest(_message.Message):
    __slots__ = ("stream_id", "tenant", "usage")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    tenant: str
    usage: bytes
    def __init__(self, stream_id: _Optional[str] = ..., tenant: _Optional[str] = ..., usage: _Optional[bytes] = ...) -> None: ...

class NoteUsageResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RenewRecipesRequest(_message.Message):
    __slots__ = ("stream_ids", "started_name")
    STREAM_IDS_FIELD_NUMBER: _ClassVar[int]
    STARTED_NAME_FIELD_NUMBER: _ClassVar[int]
    stream_ids: _containers.RepeatedScalarFieldContainer[str]
    started_name: str
    def __init__(self, stream_ids: _Optional[_Iterable[str]] = ..., started_name: _Optional[str] = ...) -> None: ...

class RenewRecipesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExplainOwnRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: str
    def __init__(self, request: _Optional[str] = ...) -> None: ...

class ExplainOwnResponse(_message.Message):
    __slots__ = ("explanation",)
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    explanation: _explain_pb2.ExplainResponse
    def __init__(self, explanation: _Optional[_Union[_explain_pb2.ExplainResponse, _Mapping]] = ...) -> None: ...

class GetMetricsRequest(_message.Message):
    __slots__ = ("is_open_metrics",)
    IS_OPEN_METRICS_FIELD_NUMBER: _ClassVar[int]
    is_open_metrics: bool
    def __init__(self, is_open_metrics: bool = ...) -> None: ...

class GetMetricsResponse(_message.Message):
    __slots__ = ("exposition",)
    EXPOSITION_FIELD_NUMBER: _ClassVar[int]
    exposition: str
    def __init__(self, exposition: _Optional[str] = ...) -> None: ...

class SetAdapterRequest(_message.Message):
    __slots__ = ("name", "path", "root", "base_model")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    BASE_MODEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    root: str
    base_model: str
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., root: _Optional[str] = ..., base_model: _Optional[str] = ...) -> None: ...

class SetAdapterResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
