"""How much the cell has taken on, how fast it gets done, and when one should come again."""

from dataclasses import dataclass
from typing import Final

from pagewire_scheduler.core.request import Request, Submission
from pagewire_shared.errors import InvalidRequestError, OverloadedError

# Of one CPython int beside the small ones, and of a reference to it.
_TOKEN_BYTES: Final = 28
_REFERENCE_BYTES: Final = 8
_REQUEST_BYTES: Final = 4096
# Of the objects that hold a token's log-probability, and one alternative; and of both in arrays.
_LOGPROB_BYTES: Final = 224
_ALTERNATIVE_BYTES: Final = 68
_PACKED_LOGPROB_BYTES: Final = 8
_SMOOTHING: Final = 0.3
_MIN_RETRY_MS: Final = 1_000
_MAX_RETRY_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """What is refused beyond.

    Attributes:
        max_num_waiting: Sequences that wait.
        max_waiting_tokens: Tokens of those sequences, each prompt counted once.
        max_request_bytes: Memory that all live requests may come to take here, estimated.
    """

    max_num_waiting: int = 4096
    max_waiting_tokens: int = 16 * 2**20
    max_request_bytes: int = 2**31


class Load:
    """Bytes of live requests, and the rate at which sequences end."""

    __slots__ = ("_last_tick", "_num_ended", "limits", "num_bytes", "rate")

    def __init__(self, limits: LoadLimits) -> None:
        self.limits = limits
        self.num_bytes = 0
        self.rate = 0.0
        self._num_ended = 0
        self._last_tick: float | None = None

    def check(self, submission: Submission, num_waiting: int, num_tokens: int) -> None:
        """Raise OverloadedError when `submission` goes beyond a limit with what is held already,
        and InvalidRequestError when it does so alone.

        `num_waiting` sequences with `num_tokens` tokens wait already.
        """
        limits = self.limits
        num_new = len(submission.emitted) - sum(submission.is_finished)
        num_new_tokens = len(submission.prompt_token_ids) + sum(map(len, submission.emitted))
        num_bytes = bytes_at_most(submission)
        for field, name, held, new, most in (
            ("n", "sequences are waiting", num_waiting, num_new, limits.max_num_waiting),
            ("prompt", "tokens are waiting", num_tokens, num_new_tokens, limits.max_waiting_tokens),
            (
                "max_tokens",
                "bytes are taken by requests",
                self.num_bytes,
                num_bytes,
                limits.max_request_bytes,
            ),
        ):
            if new > most:
                raise InvalidRequestError(
                    f"the request alone counts {new}, where {name} up to {most}", field=field
                )
            if held + new > most:
                raise OverloadedError(
                    f"{held} {name}, of at most {most}; try again later",
                    retry_after_ms=self.retry_after_ms(num_waiting),
                )

    def enter(self, request: Request) -> None:
        """A request was taken."""
        self.num_bytes += bytes_at_most(request.submission)

    def leave(self, request: Request) -> None:
        """A request was forgotten."""
        self.num_bytes -= bytes_at_most(request.submission)
        self._num_ended += len(request.sequences)

    def tick(self, now: float) -> None:
        """Let time pass; the rate is an average over some seconds."""
        if self._last_tick is None:
            self._last_tick = now
        elif now - self._last_tick >= 1.0:
            rate = self._num_ended / (now - self._last_tick)
            self.rate += _SMOOTHING * (rate - self.rate)
            self._num_ended, self._last_tick = 0, now

    def retry_after_ms(self, num_waiting: int) -> int:
        """Return in how many milliseconds half of those waiting will have been served."""
        if self.rate <= 0.0:
            return _MIN_RETRY_MS
        return int(min(max(500.0 * num_waiting / self.rate, _MIN_RETRY_MS), _MAX_RETRY_MS))


def bytes_at_most(submission: Submission) -> int:
    """Return an estimate of the memory that a request takes here until it ends."""
    num_prompt, num_choices = len(submission.prompt_token_ids), len(submission.emitted)
    sampling = submission.sampling
    num_output = sampling.max_tokens or 0
    per_output = _TOKEN_BYTES + _REFERENCE_BYTES
    if sampling.logprobs is not None:
        per_output += _LOGPROB_BYTES + sampling.logprobs * _ALTERNATIVE_BYTES
    num_told = 0 if sampling.prompt_logprobs is None else 1 + sampling.prompt_logprobs
    return (
        _REQUEST_BYTES
        + num_prompt * (_TOKEN_BYTES + _REFERENCE_BYTES * (1 + num_choices))
        + num_prompt * num_told * _PACKED_LOGPROB_BYTES
        + num_choices * num_output * per_output
    )
