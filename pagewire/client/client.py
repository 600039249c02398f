"""The client of the public gRPC API for event loops.

Errors arrive as the exceptions of pagewire_shared.errors. The server tokenizes and detokenizes.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Self, Unpack

import grpc.aio

from pagewire.client.batch_answers import BatchPart, BatchRequest, batch_parts, batch_request
from pagewire.client.call_errors import call_error
from pagewire.client.channel import open_channel
from pagewire.client.client_convert import (
    ChatOptions,
    EmbedInput,
    Sampling,
    chat_request,
    complete_request,
    embed_request,
    embeddings_from_message,
    event_from_message,
    message_message,
)
from pagewire.client.embeddings import Embeddings
from pagewire.client.events import Event, Message, ModelInfo
from pagewire.client.pooling import (
    Classifications,
    PooledOutputs,
    PoolTask,
    Scores,
    classifications_from_message,
    pool_request,
    pooled_from_message,
    score_request,
    scores_from_message,
)
from pagewire.client.resumed_calls import ResumedCall
from pagewire.client.target import parse_target
from pagewire_protos.frontend.v1 import batch_pb2_grpc, inference_pb2, inference_pb2_grpc
from pagewire_shared.errors import UnavailableError
from pagewire_shared.sampling.pooling import PoolingParams

Turn = Message | Mapping[str, Any]


class AsyncClient:
    """Client of one frontend; use it only on the event loop on which it was made.

    Args:
        address: host:port or unix:path of the frontend's gRPC port; https://host:port for TLS.
        timeout_seconds: Deadline of every call; None for no deadline.
        api_key: Key for servers that require one.
        ca_file: Authorities of the server's certificate, in PEM; None for those of
            PAGEWIRE_SERVER_CA, else for public ones.
        resume_seconds: How long a Chat or Complete call may break, without a message in between,
            and is read on by itself, from any frontend behind the address; 0 for not at all. The
            server computes each such call once, and goes on with it for a while when its client is
            lost. Ending an iteration early ends the request.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_seconds: float | None = None,
        api_key: str | None = None,
        ca_file: str | None = None,
        resume_seconds: float = 0.0,
    ) -> None:
        target = parse_target(address, setting="address")
        self.address = str(target)
        self._timeout = timeout_seconds
        self._metadata = () if api_key is None else (("authorization", f"Bearer {api_key}"),)
        self._resume_seconds = resume_seconds
        self._channel = open_channel(target, ca_file)
        self._stub = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._batches = batch_pb2_grpc.BatchServiceStub(self._channel)

    async def close(self) -> None:
        """End the connection and every open call."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def wait_connected(self, timeout_seconds: float) -> None:
        """Return once the server was reached. Raises UnavailableError after the timeout."""
        try:
            await asyncio.wait_for(self._channel.channel_ready(), timeout_seconds)
        except TimeoutError as error:
            raise UnavailableError(
                f"no server answers at {self.address} (waited {timeout_seconds:g} s)"
            ) from error

    def complete(
        self,
        prompt: str | Sequence[int],
        sampling: Sampling = None,
        *,
        model: str | None = None,
        add_special_tokens: bool = True,
        echo: bool = False,
        final_only: bool = False,
        priority: int = 0,
    ) -> AsyncIterator[Event]:
        """Continue a text or token ids; yield Opened, PromptLogprobs if requested, Deltas, Finished
        per choice, Closed.

        Ending the iteration early cancels the request.

        Args:
            prompt: Text or token ids.
            sampling: SamplingParams, a mapping of some of its fields (the model's defaults apply to
                the others), or None for the model's defaults and 16 tokens.
            model: Served name; may be left out when only one is served.
            add_special_tokens: Whether the tokenizer adds its special tokens to a text.
            echo: Return the prompt as text in Opened.
            final_only: Get all output of a choice in one delta when the choice ends.
            priority: From -100 to 100; lower is earlier.
        """
        request = complete_request(
            prompt, sampling, model, add_special_tokens, echo, final_only, priority
        )
        return self._stream(self._stub.Complete, request)

    def chat(
        self,
        messages: Sequence[Turn],
        sampling: Sampling = None,
        **options: Unpack[ChatOptions],
    ) -> AsyncIterator[Event]:
        """Answer a conversation; yield the events of `complete`. See ChatOptions for `options`.

        Deltas carry reasoning and tool calls apart from the text; `joined_calls` of
        pagewire.client.tool_convert joins the pieces of calls.
        """
        request = chat_request(messages, sampling, options)
        return self._stream(self._stub.Chat, request)

    async def batch(self, requests: Sequence[BatchRequest]) -> AsyncIterator[BatchPart]:
        """Ask for whole answers to 1 to 256 requests in one call; yield them as they are complete.

        Ending the iteration early cancels all requests. A request that is refused or fails gives
        a part with its error; the others go on.
        """
        message = batch_request(requests)
        call = self._batches.GenerateBatch(message, timeout=self._timeout, metadata=self._metadata)
        try:
            async for response in call:
                for part in batch_parts(response):
                    yield part
        except grpc.aio.AioRpcError as error:
            raise call_error(error, self.address) from None
        finally:
            call.cancel()  # has no effect on a call that ended

    async def embed(
        self,
        inputs: EmbedInput | Sequence[EmbedInput],
        pooling: PoolingParams | None = None,
        *,
        model: str | None = None,
        add_special_tokens: bool = True,
    ) -> Embeddings:
        """Return vectors for a text, token ids or a conversation, or a list of at most 256 of them.

        By default, the model's files say how; else the vector is the state of the last token,
        scaled to length 1.
        """
        request = embed_request(inputs, pooling, model, add_special_tokens)
        return embeddings_from_message(await self._call(self._stub.Embed, request))

    async def score(
        self,
        queries: str | Sequence[str],
        documents: str | Sequence[str],
        *,
        model: str | None = None,
        truncate_prompt_tokens: int | None = None,
        use_activation: bool | None = None,
    ) -> Scores:
        """Return how well texts belong together: one query with each document, or pair by pair."""
        request = score_request(queries, documents, model, truncate_prompt_tokens, use_activation)
        return scores_from_message(await self._call(self._stub.Score, request))

    async def classify(
        self,
        inputs: EmbedInput | Sequence[EmbedInput],
        *,
        model: str | None = None,
        truncate_prompt_tokens: int | None = None,
        use_activation: bool | None = None,
    ) -> Classifications:
        """Return the classes of at most 256 inputs, of a model with a classification head."""
        request = pool_request(inputs, "classify", model, truncate_prompt_tokens, use_activation)
        return classifications_from_message(await self._call(self._stub.Pool, request))

    async def pool(
        self,
        inputs: EmbedInput | Sequence[EmbedInput],
        *,
        task: PoolTask | None = None,
        model: str | None = None,
        truncate_prompt_tokens: int | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
    ) -> PooledOutputs:
        """Return the rows of at most 256 inputs: vectors, vectors of tokens, or class scores."""
        request = pool_request(inputs, task, model, truncate_prompt_tokens, normalize, dimensions)
        return pooled_from_message(await self._call(self._stub.Pool, request))

    async def list_models(self) -> list[ModelInfo]:
        """Return the models that the server lists."""
        response = await self._call(self._stub.ListModels, inference_pb2.ListModelsRequest())
        return [
            ModelInfo(
                model.name,
                model.max_model_len if model.HasField("max_model_len") else None,
                model.is_ready,
                model.root,
                model.created,
            )
            for model in response.models
        ]

    async def tokenize(
        self,
        text: str | Sequence[Turn],
        *,
        model: str | None = None,
        add_special_tokens: bool = True,
    ) -> list[int]:
        """Return the token ids of a text or of a rendered conversation."""
        request = inference_pb2.TokenizeRequest(model=model, add_special_tokens=add_special_tokens)
        if isinstance(text, str):
            request.text = text
        else:
            turns = [message_message(turn) for turn in text]
            request.conversation.CopyFrom(inference_pb2.Conversation(messages=turns))
        return list((await self._call(self._stub.Tokenize, request)).token_ids)

    async def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        model: str | None = None,
        skip_special_tokens: bool = False,
    ) -> str:
        """Return the text of token ids."""
        request = inference_pb2.DetokenizeRequest(
            model=model, token_ids=token_ids, skip_special_tokens=skip_special_tokens
        )
        response = await self._call(self._stub.Detokenize, request)
        return str(response.text)

    def _stream(self, method: Any, request: Any) -> AsyncIterator[Event]:
        if not self._resume_seconds:
            call = method(request, timeout=self._timeout, metadata=self._metadata)
            return _events(call, self.address)
        return ResumedCall(
            begin=partial(method, request),
            resume=self._stub.Resume,
            cancel=self._stub.CancelStream,
            address=self.address,
            metadata=self._metadata,
            timeout_seconds=self._timeout,
            patience_seconds=self._resume_seconds,
        ).events()

    async def _call(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise call_error(error, self.address) from None


async def _events(call: Any, address: str) -> AsyncIterator[Event]:
    try:
        async for message in call:
            yield event_from_message(message)
    except grpc.aio.AioRpcError as error:
        raise call_error(error, address) from None
    finally:
        call.cancel()  # has no effect on a call that ended
