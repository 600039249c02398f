"""Vectors as the clients and the offline API return them, named as users know them from vLLM."""

from dataclasses import dataclass, field

from pagewire.client.events import Usage


@dataclass(frozen=True, slots=True)
class Embeddings:
    """What one call for vectors returned.

    Attributes:
        model: Served name.
        vectors: One per input, in order; each [embedding size], or as many numbers as `dimensions`
            said.
        usage: Tokens of all inputs together.
    """

    model: str
    vectors: list[list[float]]
    usage: Usage


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """One vector, [embedding size], or as many numbers as `dimensions` said."""

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        """Length of the vector."""
        return len(self.embedding)


@dataclass(frozen=True, slots=True)
class EmbeddingRequestOutput:
    """The vector of one prompt.

    Attributes:
        outputs: The vector.
        prompt_token_ids: The tokens that it was made from, after truncation.
        num_cached_tokens: How many of them were found in a cache.
        num_cached_tokens_by_tier: The same by where they were, as `Usage` says it.
        finished: Always true; nothing is returned before.
    """

    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    num_cached_tokens: int
    finished: bool = True
    num_cached_tokens_by_tier: dict[str, int] = field(default_factory=dict)
