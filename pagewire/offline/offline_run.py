"""Runs the requests of the offline API through a client, and adds texts of tokens."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pagewire.client.client import AsyncClient
from pagewire.client.embeddings import EmbeddingOutput, EmbeddingRequestOutput
from pagewire.offline.beam_search import (
    BeamSearchOutput,
    BeamSearchSequence,
    scoring_request,
    sum_of_answer,
    tokens_of,
)
from pagewire.offline.offline_batch import run_bounded, with_attempts
from pagewire.offline.outputs import CompletionOutput, RequestOutput
from pagewire.offline.prompts import (
    GenerationRequest,
    Prompt,
    PromptSource,
    params_per_prompt,
    prompt_sources,
)
from pagewire.offline.whole_answers import WholeAnswer, WholeAnswers
from pagewire_shared.errors import ContextLengthError
from pagewire_shared.sampling.pooling import PoolingParams

TEXTS_AT_ONCE = 32


class OfflineRun:
    """Sends the requests of one LLM to its only model."""

    def __init__(self, client: AsyncClient, model: str) -> None:
        self._client = client
        self._model = model
        # At most one entry per token of the vocabulary.
        self._texts: dict[int, str] = {}

    async def run_all(
        self,
        requests: Sequence[GenerationRequest],
        concurrency: int,
        advance: Callable[[], object],
    ) -> list[RequestOutput]:
        """Run all requests, at most `concurrency` at once; the first error cancels all others."""
        answers: dict[int, WholeAnswer] = {}

        def take(number: int, answer: WholeAnswer) -> None:
            answers[number] = answer
            advance()

        await WholeAnswers(self._client, self._model, requests, take).run(concurrency)
        return [
            await self._output(request, answers.pop(number))
            for number, request in enumerate(requests)
        ]

    async def search_all(
        self,
        requests: Sequence[GenerationRequest],
        concurrency: int,
        advance: Callable[[], object],
    ) -> list[BeamSearchOutput]:
        """Run beam searches, as `run_all`."""
        return await run_bounded([self._search(r) for r in requests], concurrency, advance)

    async def _output(self, request: GenerationRequest, answer: WholeAnswer) -> RequestOutput:
        texts = await self._texts_of(answer.collector.named_token_ids())
        prompt = request.source if isinstance(request.source, str) else answer.prompt
        return answer.collector.result(prompt, texts=texts)

    async def _run_one(self, request: GenerationRequest) -> RequestOutput:
        [output] = await self.run_all([request], 1, lambda: None)
        return output

    async def _texts_of(self, token_ids: Iterable[int]) -> dict[int, str]:
        """Return the text of each token alone; the server decodes each token once."""
        missing = sorted(set(token_ids) - self._texts.keys())
        for begin in range(0, len(missing), TEXTS_AT_ONCE):
            some = missing[begin : begin + TEXTS_AT_ONCE]
            texts = await asyncio.gather(*(self._decode([token_id]) for token_id in some))
            self._texts.update(zip(some, texts, strict=True))
        return self._texts

    async def _search(self, request: GenerationRequest) -> BeamSearchOutput:
        output = await self._run_one(request)
        return BeamSearchOutput([await self._sequence(output, one) for one in output.outputs])

    async def _sequence(
        self, output: RequestOutput, choice: CompletionOutput
    ) -> BeamSearchSequence:
        tokens = tokens_of(output, choice)
        try:
            scored = await self._run_one(scoring_request(output, choice))
            total: float | None = sum_of_answer(scored, len(choice.token_ids))
        except ContextLengthError:
            total = None
        text = await self._decode(tokens)
        return BeamSearchSequence(tokens, text, total, choice.finish_reason, choice.stop_reason)

    async def _decode(self, token_ids: Sequence[int]) -> str:
        return await self._client.detokenize(token_ids, model=self._model)


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """One prompt, its pooling, and the name of its adapter; None for defaults and no adapter."""

    source: PromptSource
    pooling: PoolingParams | None
    model: str | None = None


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
        model = request.model or self._model
        answer = await self._client.embed([source], request.pooling, model=model)
        num_tokens = answer.usage.prompt_tokens
        return EmbeddingRequestOutput(
            outputs=EmbeddingOutput(answer.vectors[0]),
            # Truncation keeps the end of the prompt.
            prompt_token_ids=list(source[len(source) - num_tokens :]),
            num_cached_tokens=answer.usage.cached_tokens,
            num_cached_tokens_by_tier=answer.usage.cached_tokens_by_tier,
        )
