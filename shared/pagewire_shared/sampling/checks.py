"""Checks and normalizes single sampling parameters."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pagewire_shared.errors import InvalidRequestError

MAX_CHOICES: Final = 128
MAX_LOGPROBS: Final = 20
MAX_STOP_STRINGS: Final = 4
MAX_STOP_CHARS: Final = 256
MAX_STOP_TOKEN_IDS: Final = 128
MAX_LOGIT_BIAS: Final = 300
MAX_BIAS: Final = 100.0
MAX_PENALTY: Final = 2.0
MAX_REPETITION_PENALTY: Final = 10.0
MAX_ALLOWED_TOKEN_IDS: Final = 4096
MAX_BAD_WORDS: Final = 64
MAX_BAD_WORD_CHARS: Final = 256
MAX_BAD_SEQUENCES: Final = 256
MAX_BAD_SEQUENCE_TOKENS: Final = 256
MIN_SEED: Final = -(2**63)
MAX_SEED: Final = 2**64 - 1
MAX_INT: Final = 2**31 - 1
_MAX_TOKEN_ID: Final = 2**32 - 1


def _stop(value: object) -> tuple[str, ...]:
    return _texts("stop", value, MAX_STOP_STRINGS, MAX_STOP_CHARS)


def _bad_words(value: object) -> tuple[str, ...]:
    return _texts("bad_words", value, MAX_BAD_WORDS, MAX_BAD_WORD_CHARS)


def _texts(name: str, value: object, most: int, most_chars: int) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else _items(name, value, most)
    if not all(isinstance(text, str) and text for text in values):
        raise InvalidRequestError(f"{name} must hold non-empty strings", field=name)
    longest = max(map(len, values), default=0)
    if longest > most_chars:
        raise InvalidRequestError(
            f"{name}: a string may have at most {most_chars} characters, got {longest}", field=name
        )
    return values


def _stop_token_ids(value: object) -> tuple[int, ...]:
    return _token_ids("stop_token_ids", value, MAX_STOP_TOKEN_IDS)


def _allowed_token_ids(value: object) -> tuple[int, ...]:
    return _token_ids("allowed_token_ids", value, MAX_ALLOWED_TOKEN_IDS)


def _bad_token_sequences(value: object) -> tuple[tuple[int, ...], ...]:
    name = "bad_token_sequences"
    sequences = _items(name, value, MAX_BAD_SEQUENCES)
    checked = tuple(_token_ids(name, one, MAX_BAD_SEQUENCE_TOKENS) for one in sequences)
    if not all(checked):
        raise InvalidRequestError(f"{name} must hold sequences that are not empty", field=name)
    return checked


def _token_ids(name: str, value: object, most: int) -> tuple[int, ...]:
    token_ids = _items(name, value, most)
    for token_id in token_ids:
        check_int(name, token_id, 0, _MAX_TOKEN_ID)
    return token_ids


def _items(name: str, value: object, most: int) -> tuple[Any, ...]:
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidRequestError(f"{name} must be a list, got {type(value).__name__}", field=name)
    if len(value) > most:
        kind = "strings" if name in ("stop", "bad_words") else "ids"
        kind = "sequences" if name == "bad_token_sequences" else kind
        raise InvalidRequestError(
            f"{name} takes at most {most} {kind}, got {len(value)}", field=name
        )
    return tuple(value)


def _logit_bias(value: object) -> dict[int, float]:
    name = "logit_bias"
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidRequestError(f"{name} must map token ids to numbers", field=name)
    if len(value) > MAX_LOGIT_BIAS:
        raise InvalidRequestError(
            f"{name} takes at most {MAX_LOGIT_BIAS} tokens, got {len(value)}", field=name
        )
    for token_id, bias in value.items():
        check_int(name, token_id, 0, _MAX_TOKEN_ID)
        check_float(name, bias, -MAX_BIAS, MAX_BIAS)
    return {token_id: float(bias) for token_id, bias in value.items()}


NORMAL_FORMS: Final[Mapping[str, Callable[[object], Any]]] = {
    "stop": _stop,
    "bad_words": _bad_words,
    "stop_token_ids": _stop_token_ids,
    "allowed_token_ids": _allowed_token_ids,
    "bad_token_sequences": _bad_token_sequences,
    "logit_bias": _logit_bias,
}
"""Fields that may be given in several ways, to what checks them and returns the one kept."""


def check_int(name: str, value: object, low: float, high: float) -> None:
    """Raise InvalidRequestError unless `value` is an integer between `low` and `high`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequestError(
            f"{name} must be an integer, got {type(value).__name__}", field=name
        )
    if not low <= value <= high:
        raise InvalidRequestError(
            f"{name} must be between {low} and {high}, got {value}", field=name
        )


def check_float(
    name: str, value: object, low: float, high: float, *, is_open: bool = False
) -> None:
    """Raise InvalidRequestError unless `value` is a finite number between `low` and `high`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequestError(f"{name} must be a number, got {value!r}", field=name)
    if not low <= value <= high or (is_open and value == low):
        bracket = "(" if is_open else "["
        raise InvalidRequestError(
            f"{name} must be in {bracket}{low}, {high}], got {value}", field=name
        )
