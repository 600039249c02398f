"""Lists what each HTTP route and each gRPC method of the public ports asks of an API key.

A route or a method that is not in its table is not served: `require_listed` ends the start.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pagewire_shared.errors import ForbiddenError
from pagewire_shared.identity.key_rights import KeyScope
from pagewire_shared.security.callers import ADMIN_METHODS

_EMBED: Final = KeyScope.EMBED
_GENERATE: Final = KeyScope.GENERATE

ANY_KEY: Final = None
"""In place of a scope: every key may."""
OPEN_PATHS: Final = frozenset(
    {"/health", "/ready", "/live", "/ping", "/version", "/", "/docs", "/openapi.json"}
)
"""Paths that need no key: those of orchestrators, which have none, and the pages, which have no
data. `/metrics` is one of them where it is not protected."""
OPEN_FOLDER: Final = "/page/"
"""Beginning of the paths of the files that the pages load; they need no key either."""
METRICS_PATH: Final = "/metrics"

PATHS: Final[Mapping[str, KeyScope | None]] = {
    METRICS_PATH: KeyScope.METRICS,
    "/state": ANY_KEY,
    "/v1/models": ANY_KEY,
    "/tokenize": ANY_KEY,
    "/detokenize": ANY_KEY,
    "/v1/chat/completions": _GENERATE,
    "/v1/completions": _GENERATE,
    "/v1/responses": _GENERATE,
    "/v1/embeddings": _EMBED,
    "/pooling": _EMBED,
    "/classify": _EMBED,
    **dict.fromkeys(("/score", "/v1/score"), _EMBED),
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), _EMBED),
    "/v1/load_lora_adapter": KeyScope.ADAPTERS,
    "/v1/unload_lora_adapter": KeyScope.ADAPTERS,
    "/sleep": KeyScope.ADMIN,
    "/wake_up": KeyScope.ADMIN,
    "/is_sleeping": KeyScope.ADMIN,
    "/update_weights": KeyScope.ADMIN,
    "/start_profile": KeyScope.ADMIN,
    "/stop_profile": KeyScope.ADMIN,
}
FOLDERS: Final[Mapping[str, KeyScope | None]] = {
    "/v1/models/": ANY_KEY,
    "/v1/responses/": _GENERATE,
    "/v1/streams/": _GENERATE,
}
"""Beginnings of paths with an id."""

_INFERENCE: Final = "/pagewire.frontend.v1.InferenceService"
_ADAPTERS: Final = "/pagewire.frontend.v1.AdapterService"

METHODS: Final[Mapping[str, KeyScope | None]] = {
    f"{_INFERENCE}/Chat": _GENERATE,
    f"{_INFERENCE}/Complete": _GENERATE,
    f"{_INFERENCE}/Resume": _GENERATE,
    f"{_INFERENCE}/CancelStream": _GENERATE,
    f"{_INFERENCE}/Tokenize": ANY_KEY,
    f"{_INFERENCE}/Detokenize": ANY_KEY,
    f"{_INFERENCE}/ListModels": ANY_KEY,
    f"{_INFERENCE}/Embed": _EMBED,
    f"{_INFERENCE}/Pool": _EMBED,
    f"{_INFERENCE}/Score": _EMBED,
    "/pagewire.frontend.v1.BatchService/GenerateBatch": _GENERATE,
    f"{_ADAPTERS}/Load": KeyScope.ADAPTERS,
    f"{_ADAPTERS}/Unload": KeyScope.ADAPTERS,
    f"{_ADAPTERS}/List": KeyScope.ADAPTERS,
    f"{_ADAPTERS}/Watch": KeyScope.ADAPTERS,
    "/pagewire.frontend.v1.ExplainService/Explain": KeyScope.ADMIN,
    **{f"/{name}": KeyScope.ADMIN for name in ADMIN_METHODS},
}
OPEN_SERVICES: Final = ("/grpc.health.", "/grpc.reflection.")
"""Beginnings of methods that need no key."""

OPERATING: Final = frozenset({KeyScope.METRICS, KeyScope.ADAPTERS, KeyScope.ADMIN})
"""Scopes whose refusals are logged as those of administration."""


def is_open(path: str, *, protects_metrics: bool) -> bool:
    """Return whether an HTTP path needs no key."""
    if path == METRICS_PATH:
        return not protects_metrics
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)


def scope_of_path(path: str) -> KeyScope | None:
    """Return the scope for a path that is not open. A path that is not served gets an answer that
    says so, with any key."""
    if path in PATHS:
        return PATHS[path]
    return next((scope for start, scope in FOLDERS.items() if path.startswith(start)), ANY_KEY)


def scope_of_method(method: str) -> KeyScope | None:
    """Return the scope for a gRPC method that is not open; `admin` for one that is not listed."""
    return METHODS.get(method, KeyScope.ADMIN)


def require_scope(scopes: Iterable[KeyScope], needed: KeyScope | None) -> None:
    """Raise ForbiddenError unless a key with `scopes` may make calls of a scope, or of ANY_KEY."""
    if needed is not None and needed not in scopes:
        raise ForbiddenError(f"this API key has no scope {needed.value!r}")


def require_listed(templates: Iterable[str]) -> None:
    """Raise AssertionError for a route whose path template is in no table."""
    for template in templates:
        start = template.partition("{")[0]
        known = {*OPEN_PATHS, *PATHS} if start == template else {OPEN_FOLDER, *FOLDERS}
        assert start in known, f"the route {template} says nothing of API keys: see scopes.py"
