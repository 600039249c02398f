"""Outputs of one request while they are generated."""

from collections.abc import AsyncIterator
from dataclasses import replace

from pagewire.client.client import AsyncClient
from pagewire.client.client_convert import given_params
from pagewire.offline.outputs import OutputCollector, RequestOutput
from pagewire.offline.prompts import GenerationRequest
from pagewire_shared.sampling.params import SamplingParams


async def output_stream(
    client: AsyncClient, request: GenerationRequest, *, model: str, request_id: str
) -> AsyncIterator[RequestOutput]:
    """Yield the output so far after each event; the last one has `finished`.

    Args:
        request: A prompt, not a conversation.
        request_id: Name of the outputs, in place of the server's.
    """
    params: SamplingParams = given_params(request.params)
    collector = OutputCollector(
        params.n, params.logprobs is not None, params.prompt_logprobs is not None
    )
    source = request.source
    shown = source if isinstance(source, str) else None
    async for event in client.complete(
        source,  # type: ignore[arg-type]
        request.params,
        model=model,
        priority=request.priority,
    ):
        collector.add(event)
        yield replace(collector.result(shown), request_id=request_id)
