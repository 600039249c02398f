"""Upper bounds of the bytes that a new sequence takes in a plan, computed without encoding it."""

from typing import Final

from pagewire_scheduler.core.data.stream_limits import StreamLimits
from pagewire_scheduler.core.data.submission import Submission
from pagewire_shared.errors import InvalidRequestError

_ID: Final = 4
"""Bytes of a token or block id in an array."""
_VARINT: Final = 5
"""Most bytes of an id that stands alone."""
_RECORD: Final = 256
"""All fields of a fixed size, and the tags of all fields."""


def condition_bytes(submission: Submission) -> dict[str, int]:
    """Return the bytes of a new sequence besides tokens and blocks, by field."""
    sampling = submission.sampling
    sequences = sampling.bad_token_sequences
    return {
        "eos_token_ids": _ID * len(submission.eos_token_ids),
        "tenant": 4 * len(submission.tenant),
        "prediction": _ID * len(submission.predicted_token_ids),
        "stop_token_ids": _VARINT * len(sampling.stop_token_ids),
        "logit_bias": (_VARINT + 10) * len(sampling.logit_bias),
        "allowed_token_ids": _VARINT * len(sampling.allowed_token_ids),
        "bad_token_sequences": _VARINT * sum(len(sequence) + 2 for sequence in sequences),
    }


def record_bytes(submission: Submission, num_tokens: int, num_blocks: int) -> int:
    """Return the bytes of a new sequence that is sent `num_tokens` and `num_blocks`."""
    conditions = sum(condition_bytes(submission).values())
    return _RECORD + conditions + _ID * (num_tokens + num_blocks)


def check_conditions(submission: Submission) -> None:
    """Raise InvalidRequestError, naming the largest field, for more than a plan has room for.

    Tokens and blocks always have room: the context length is limited to what fits in a plan.
    """
    # A block table may have one block that is not full.
    most = StreamLimits().max_condition_bytes - _RECORD - _ID
    by_field = condition_bytes(submission)
    if sum(by_field.values()) > most:
        field = max(by_field, key=lambda name: by_field[name])
        raise InvalidRequestError(
            f"{field} takes {by_field[field]} bytes; with all else of a request that is more than "
            f"the {most} that a worker is told",
            field=field,
        )
