"""Converts embedding requests and answers to and from messages."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from pagewire.client.client_convert import message_message, usage_from_message
from pagewire.client.embeddings import Embeddings
from pagewire.client.events import Message
from pagewire_protos.frontend.v1 import inference_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.convert import pooling_to_message
from pagewire_shared.sampling.pooling import PoolingParams

EmbedInput = str | Sequence[int] | Sequence[Message | Mapping[str, Any]]
"""A text, token ids or a conversation."""


def embed_request(
    inputs: EmbedInput | Sequence[EmbedInput],
    pooling: PoolingParams | None,
    model: str | None,
    add_special_tokens: bool = True,
) -> inference_pb2.EmbedRequest:
    """Return the request for one input or a list of them. Raises InvalidRequestError."""
    request = inference_pb2.EmbedRequest(
        model=model,
        inputs=[_input_message(item, index) for index, item in enumerate(_listed(inputs))],
        add_special_tokens=add_special_tokens,
    )
    if pooling is not None:
        request.pooling.CopyFrom(pooling_to_message(pooling))
        if pooling.dimensions is not None:
            request.dimensions = pooling.dimensions
        if pooling.truncate_prompt_tokens is not None:
            request.truncate_prompt_tokens = pooling.truncate_prompt_tokens
    return request


def embeddings_from_message(response: inference_pb2.EmbedResponse) -> Embeddings:
    """Return the vectors in an answer."""
    return Embeddings(
        response.model,
        [list(embedding.values) for embedding in response.embeddings],
        usage_from_message(response.usage),
    )


def _listed(inputs: Any) -> list[Any]:
    """Return the inputs as a list; a sequence of integers or turns is one input."""
    if isinstance(inputs, str):
        return [inputs]
    listed = list(inputs)
    is_one = bool(listed) and isinstance(listed[0], Integral | Message | Mapping)
    return [listed] if is_one else listed


def _input_message(item: Any, index: int) -> inference_pb2.EmbedInput:
    if isinstance(item, str):
        return inference_pb2.EmbedInput(text=item)
    if isinstance(item, Sequence) and item and isinstance(item[0], Message | Mapping):
        turns = [message_message(turn) for turn in item]
        return inference_pb2.EmbedInput(conversation=inference_pb2.Conversation(messages=turns))
    try:
        return inference_pb2.EmbedInput(token_ids=inference_pb2.TokenIds(ids=list(item)))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"input {index} is neither a text nor a conversation nor token ids from 0 to "
            f"2**32 - 1 ({error})",
            field="input",
        ) from error
