"""Pooling parameters, which turn hidden states into one vector, with their checks."""

from dataclasses import dataclass
from typing import Literal

from pagewire_shared.errors import InvalidRequestError

MAX_DIMENSIONS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingParams:
    """Pooling of a prompt to a vector; the states are those after the model's last norm.

    Attributes:
        pooling: "last" takes the state of the last token, "mean" the mean over all tokens.
        normalize: Scale the vector to length 1.
        dimensions: Number of leading components to keep (matryoshka embeddings, Kusupati et al.,
            2022), scaled again when normalized; None for all.
        truncate_prompt_tokens: As in SamplingParams.

    Raises:
        InvalidRequestError: A value is out of bounds; names the field.
    """

    pooling: Literal["last", "mean"] = "last"
    normalize: bool = True
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.pooling not in ("last", "mean"):
            raise InvalidRequestError(
                f'pooling must be "last" or "mean", got {self.pooling!r}', field="pooling"
            )
        if not isinstance(self.normalize, bool):
            raise InvalidRequestError("normalize must be true or false", field="normalize")
        value = self.dimensions
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_number and 1 <= value <= MAX_DIMENSIONS):
            raise InvalidRequestError(
                f"dimensions must be between 1 and {MAX_DIMENSIONS}, got {value!r}",
                field="dimensions",
            )
        check_truncation(self.truncate_prompt_tokens)


def check_truncation(value: object) -> None:
    """Raise InvalidRequestError for all values but None, -1 and a number of tokens to keep."""
    if value is None:
        return
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not (value == -1 or 1 <= value <= 2**31 - 1):  # type: ignore[operator]
        raise InvalidRequestError(
            f"truncate_prompt_tokens must be -1 or at least 1, got {value!r}",
            field="truncate_prompt_tokens",
        )
