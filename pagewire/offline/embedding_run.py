"""Runs the embedding requests of the offline API through a client."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pagewire.client.client import AsyncClient
from pagewire.client.embeddings import EmbeddingOutput, EmbeddingRequestOutput
from pagewire.offline.offline_batch import run_bounded, with_attempts
from pagewire.offline.prompts import Prompt, PromptSource, params_per_prompt, prompt_sources
from pagewire_shared.sampling.pooling import PoolingParams


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """One prompt and its pooling; None for the defaults."""

    source: PromptSource
    pooling: PoolingParams | None


def embedding_requests(
    prompts: Prompt | Sequence[Prompt],
    params: PoolingParams | Sequence[PoolingParams] | None,
) -> list[EmbeddingRequest]:
    """Return one request per prompt. Raises InvalidRequestError that names an invalid prompt."""
    sources = prompt_sources(prompts)
    own = params_per_prompt(params, len(sources), "pooling_params")
    return [EmbeddingRequest(*pair) for pair in zip(sources, own, strict=True)]


class EmbeddingRun:
    """Sends the embeddings of one LLM to its only model.

    Each prompt is its own call. So the number of prompts has no bound, a frontend that dies costs
    one call only, and cached tokens are known per prompt.
    """

    def __init__(self, client: AsyncClient, model: str) -> None:
        self._client = client
        self._model = model

    async def run_all(
        self,
        requests: Sequence[EmbeddingRequest],
        concurrency: int,
        advance: Callable[[], object],
    ) -> list[EmbeddingRequestOutput]:
        """Run all requests, at most `concurrency` at once; the first error cancels the others."""
        works = [with_attempts(self._client, partial(self._embed, one)) for one in requests]
        return await run_bounded(works, concurrency, advance)

    async def _embed(self, request: EmbeddingRequest) -> EmbeddingRequestOutput:
        source = request.source
        if isinstance(source, str):
            # The answer contains no tokens, so they are fetched first.
            source = await self._client.tokenize(source, model=self._model)
        answer = await self._client.embed([source], request.pooling, model=self._model)
        num_tokens = answer.usage.prompt_tokens
        return EmbeddingRequestOutput(
            outputs=EmbeddingOutput(answer.vectors[0]),
            # Truncation keeps the end of the prompt.
            prompt_token_ids=list(source[len(source) - num_tokens :]),
            num_cached_tokens=answer.usage.cached_tokens,
            num_cached_tokens_by_tier=answer.usage.cached_tokens_by_tier,
        )
