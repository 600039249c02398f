"""The exception tree of Pagewire: every error that a user or a peer can cause.

Conversions to gRPC and HTTP statuses read `status_name` and `code` only.
"""

from dataclasses import dataclass


@dataclass
class PagewireError(Exception):
    """Root of the tree.

    Attributes:
        message: One sentence for a person.
        field: Offending field in the spelling of the public API, or None.
        code: Stable code that programs match on.
        retry_after_ms: When to try again; None when trying again does not help.
    """

    message: str
    field: str | None = None
    code: str = "internal_error"
    retry_after_ms: int | None = None

    status_name = "INTERNAL"
    """Name of the grpc.StatusCode."""

    def __str__(self) -> str:
        return self.message


@dataclass
class InvalidRequestError(PagewireError, ValueError):
    """A field of a request cannot be accepted."""

    code: str = "invalid_value"
    status_name = "INVALID_ARGUMENT"


@dataclass
class ContextLengthError(InvalidRequestError):
    """Prompt, or prompt and output together, do not fit the context."""

    code: str = "context_length_exceeded"
    status_name = "INVALID_ARGUMENT"


@dataclass
class ModelNotFoundError(PagewireError):
    """No model of that name is configured."""

    field: str | None = "model"
    code: str = "model_not_found"
    status_name = "NOT_FOUND"


@dataclass
class AuthenticationError(PagewireError):
    """The API key is missing or unknown."""

    code: str = "invalid_api_key"
    status_name = "UNAUTHENTICATED"


@dataclass
class ForbiddenError(PagewireError):
    """The API key, or the certificate of the caller, does not allow the request."""

    code: str = "permission_denied"
    status_name = "PERMISSION_DENIED"


@dataclass
class OverloadedError(PagewireError):
    """A bounded queue is full; trying again later helps."""

    code: str = "rate_limit_exceeded"
    retry_after_ms: int | None = 1000
    status_name = "RESOURCE_EXHAUSTED"


@dataclass
class DeadlineError(PagewireError):
    """The deadline of the request passed."""

    code: str = "deadline_exceeded"
    status_name = "DEADLINE_EXCEEDED"


@dataclass
class UnavailableError(PagewireError):
    """A required peer is not reachable at the moment."""

    code: str = "unavailable"
    retry_after_ms: int | None = 1000
    status_name = "UNAVAILABLE"


@dataclass
class WeightsChangedError(PagewireError):
    """An answer began with weights that no worker has any more; another try begins anew."""

    code: str = "weights_changed"
    retry_after_ms: int | None = 1000
    status_name = "UNAVAILABLE"


@dataclass
class PeerRefusedError(PagewireError):
    """A peer has another protocol range, model, tokenizer or generation."""

    code: str = "peer_refused"
    status_name = "FAILED_PRECONDITION"


@dataclass
class InternalError(PagewireError):
    """An unexpected failure inside Pagewire."""


@dataclass
class WireError(PagewireError):
    """A peer sent a message that contradicts the contract."""

    code: str = "wire_error"
    status_name = "INVALID_ARGUMENT"


@dataclass
class StartupError(PagewireError, ValueError):
    """A process cannot start: bad setting, broken checkpoint, taken port, too little memory.

    Printed as one line; the process exits with a non-zero status.
    """

    code: str = "startup_error"
    status_name = "FAILED_PRECONDITION"


ERROR_CLASSES: tuple[type[PagewireError], ...] = (
    InvalidRequestError,
    ContextLengthError,
    ModelNotFoundError,
    AuthenticationError,
    ForbiddenError,
    OverloadedError,
    DeadlineError,
    UnavailableError,
    WeightsChangedError,
    PeerRefusedError,
    WireError,
    InternalError,
)
"""Classes that may cross a process boundary; `error_from` finds them by code or status."""


def error_from(
    *, message: str, field: str | None, code: str, status_name: str, retry_after_ms: int | None
) -> PagewireError:
    """Rebuild an error received from a peer: the class with this code, else with this status."""
    for matches in (
        [c for c in ERROR_CLASSES if c.code == code],
        [c for c in ERROR_CLASSES if c.status_name == status_name],
    ):
        if matches:
            return matches[0](
                message=message, field=field, code=code, retry_after_ms=retry_after_ms
            )
    return InternalError(message=message, field=field, code=code, retry_after_ms=retry_after_ms)
