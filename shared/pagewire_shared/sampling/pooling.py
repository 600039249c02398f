"""Pooling parameters, which turn hidden states into vectors or class scores, with their checks."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from pagewire_shared.errors import InvalidRequestError

MAX_DIMENSIONS = 2**16

PoolingKind = Literal["last", "mean", "cls", "tokens", "scores"]
KINDS: Final[tuple[str, ...]] = get_args(PoolingKind)
CACHEABLE: Final = ("last", "scores")
"""Kinds that need the state of the last token only: a cached prefix serves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingParams:
    """Pooling of a prompt to a vector; the states are those after the model's last norm.

    Attributes:
        pooling: "last" takes the state of the last token, "cls" that of the first, "mean" the mean
            over all tokens, "tokens" every state, and "scores" the numbers that the classification
            head makes of them. None: as the model's files say, else "last".
        normalize: Scale each vector to length 1. None: as the model's files say, else yes.
        dimensions: Number of leading components to keep (matryoshka embeddings, Kusupati et al.,
            2022), scaled again when normalized; None for all.
        truncate_prompt_tokens: As in SamplingParams.
        second_start: Position of the first token of the second text of a pair; 0 for one text.

    Raises:
        InvalidRequestError: A value is out of bounds; names the field.
    """

    pooling: PoolingKind | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None
    second_start: int = 0

    def __post_init__(self) -> None:
        if self.pooling is not None and self.pooling not in KINDS:
            shown = ", ".join(f'"{kind}"' for kind in KINDS)
            raise InvalidRequestError(
                f"pooling must be one of {shown}, got {self.pooling!r}", field="pooling"
            )
        if self.normalize is not None and not isinstance(self.normalize, bool):
            raise InvalidRequestError("normalize must be true or false", field="normalize")
        value = self.dimensions
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_number and 1 <= value <= MAX_DIMENSIONS):
            raise InvalidRequestError(
                f"dimensions must be between 1 and {MAX_DIMENSIONS}, got {value!r}",
                field="dimensions",
            )
        check_truncation(self.truncate_prompt_tokens)

    @property
    def kind(self) -> PoolingKind:
        """The kind of pooling, where no file of the model says anything."""
        return self.pooling or "last"

    @property
    def is_normalized(self) -> bool:
        """Whether vectors are scaled to length 1, where no file of the model says anything."""
        return self.normalize is not False and self.kind != "scores"

    def num_values(self, num_tokens: int, embedding_size: int, num_labels: int) -> int:
        """Return how many numbers a prompt of `num_tokens` becomes."""
        if self.kind == "scores":
            return num_labels
        return embedding_size * (num_tokens if self.kind == "tokens" else 1)


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
