"""Parameters of a beam search, with their checks."""

import math
from dataclasses import dataclass
from typing import Literal

from pagewire_shared.errors import InvalidRequestError

MAX_BEAM_WIDTH = 16
MAX_BEAM_CANDIDATES = 8 * MAX_BEAM_WIDTH
"""Most likely next tokens that a search may request from a worker per beam: its width, and one for
each stop token. The scheduler refuses a search that needs more."""

# Scores divide by length ** penalty: within this bound no length of a sequence overflows a float.
MAX_LENGTH_PENALTY = 10.0

EarlyStopping = bool | Literal["never"]
"""The value as users write it; names and meanings are those of transformers and vLLM."""


@dataclass(frozen=True, slots=True)
class BeamParams:
    """A beam search whose width is the number of choices.

    Attributes:
        length_penalty: A sequence of n tokens scores its sum of log-probabilities divided by n to
            this power (Wu et al., 2016, "Google's Neural Machine Translation System", as
            simplified by transformers).
        early_stopping: True ends the search with the first `width` finished sequences, False when
            no running beam is likely to beat the worst of them, None ("never") when none can.
    """

    length_penalty: float = 1.0
    early_stopping: bool | None = False

    def __post_init__(self) -> None:
        penalty = self.length_penalty
        is_number = isinstance(penalty, int | float) and not isinstance(penalty, bool)
        if not is_number or not math.isfinite(penalty) or abs(penalty) > MAX_LENGTH_PENALTY:
            raise InvalidRequestError(
                f"length_penalty must be a number in [-{MAX_LENGTH_PENALTY:g}, "
                f"{MAX_LENGTH_PENALTY:g}], got {penalty!r}",
                field="length_penalty",
            )


def early_stopping_from(value: object) -> bool | None:
    """Return the internal form of a user's value. Raises InvalidRequestError."""
    if isinstance(value, bool):
        return value
    if value == "never":
        return None
    raise InvalidRequestError(
        f'early_stopping must be true, false or "never", got {value!r}', field="early_stopping"
    )


def early_stopping_name(value: bool | None) -> EarlyStopping:
    """Return the user's form of an internal value."""
    return "never" if value is None else value
