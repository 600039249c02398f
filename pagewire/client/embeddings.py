"""Vectors that the clients and the offline API return, with vLLM's names."""

from dataclasses import dataclass, field

from pagewire.client.events import Usage


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The result of one embedding call.

    Attributes:
        model: Served name.
        vectors: One per input, in order; each [embedding size], or [dimensions] if given.
        usage: Tokens of all inputs together.
    """

    model: str
    vectors: list[list[float]]
    usage: Usage


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """One vector, [embedding size], or [dimensions] if given."""

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
        prompt_token_ids: The tokens of the prompt, after truncation.
        num_cached_tokens: Number of these tokens that a cache had.
        num_cached_tokens_by_tier: The same number by tier, as in `Usage`.
        finished: Always true, because results are complete.
    """

    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    num_cached_tokens: int
    finished: bool = True
    num_cached_tokens_by_tier: dict[str, int] = field(default_factory=dict)
