"""Converts between the messages of Embed and plain data."""

from pagewire_frontend.access.api_keys import tenant_of
from pagewire_frontend.engine.embedding import Embeddings, check_num_inputs, embed_requests
from pagewire_frontend.engine.request_fit import check_num_ids
from pagewire_frontend.grpc_api.convert import conversation_prompt
from pagewire_frontend.grpc_api.event_convert import usage_message
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.generation_request import (
    GenerationRequest,
    Prompt,
    TextPrompt,
    TokenPrompt,
)
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.convert import pooling_from_message
from pagewire_shared.sampling.pooling import PoolingParams


def requests(
    message: pb.EmbedRequest, model: LoadedModel, timeout_seconds: float | None
) -> list[GenerationRequest]:
    """Return one request per input. Raises InvalidRequestError naming the field."""
    check_num_inputs(len(message.inputs))
    check_num_ids(sum(len(item.token_ids.ids) for item in message.inputs), "input")
    pooling = pooling_from_message(message.pooling)
    special = message.add_special_tokens if message.HasField("add_special_tokens") else True
    return embed_requests(
        model,
        [_input(item, model, special) for item in message.inputs],
        PoolingParams(
            pooling=pooling.pooling,
            normalize=pooling.normalize,
            dimensions=message.dimensions if message.HasField("dimensions") else None,
            truncate_prompt_tokens=(
                message.truncate_prompt_tokens
                if message.HasField("truncate_prompt_tokens")
                else None
            ),
        ),
        tenant=tenant_of(message.tenant if message.HasField("tenant") else None),
        cache_salt=message.cache_salt if message.HasField("cache_salt") else None,
        priority=message.priority,
        timeout_seconds=timeout_seconds,
    )


def response(model: str, outcome: Embeddings) -> pb.EmbedResponse:
    """Return the response message."""
    return pb.EmbedResponse(
        model=model,
        embeddings=[pb.Embedding(values=vector.tolist()) for vector in outcome.vectors],
        usage=usage_message(outcome.usage),
    )


def _input(item: pb.EmbedInput, model: LoadedModel, add_special_tokens: bool) -> Prompt:
    match item.WhichOneof("input"):
        case "text":
            return TextPrompt(item.text, add_special_tokens)
        case "token_ids":
            return TokenPrompt(tuple(item.token_ids.ids))
        case "conversation":
            return conversation_prompt(item.conversation, model, adds_by_default=False)
    raise InvalidRequestError("an input is empty: text, token_ids or conversation", field="input")
