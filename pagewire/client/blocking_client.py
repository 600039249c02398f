"""The client of the public gRPC API with blocking calls."""

from collections.abc import Iterator, Sequence
from typing import Any, Self, Unpack

from pagewire.client.client import AsyncClient, Turn
from pagewire.client.client_convert import ChatOptions, EmbedInput, Sampling
from pagewire.client.embeddings import Embeddings
from pagewire.client.events import Event, ModelInfo
from pagewire.client.loop_thread import LoopThread, shared_loop_thread
from pagewire.client.pooling import Classifications, PooledOutputs, Scores
from pagewire_shared.sampling.pooling import PoolingParams


class Client:
    """AsyncClient with blocking calls, for code without an event loop or beside a running one.

    Args:
        address, timeout_seconds, api_key, ca_file, resume_seconds: As those of AsyncClient.
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
        self._loop: LoopThread = shared_loop_thread()

        async def connect() -> AsyncClient:
            return AsyncClient(
                address,
                timeout_seconds=timeout_seconds,
                api_key=api_key,
                ca_file=ca_file,
                resume_seconds=resume_seconds,
            )

        self._client = self._loop.run(connect())

    def close(self) -> None:
        """End the connection and every open call."""
        self._loop.run(self._client.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def wait_connected(self, timeout_seconds: float) -> None:
        """Return once the server was reached. Raises UnavailableError after the timeout."""
        self._loop.run(self._client.wait_connected(timeout_seconds))

    def complete(
        self,
        prompt: str | Sequence[int],
        sampling: Sampling = None,
        *,
        model: str | None = None,
        add_special_tokens: bool = True,
        echo: bool = False,
        final_only: bool = False,
    ) -> Iterator[Event]:
        """As AsyncClient.complete; closing the iterator cancels the request."""
        return self._loop.iterate(
            lambda: self._client.complete(
                prompt,
                sampling,
                model=model,
                add_special_tokens=add_special_tokens,
                echo=echo,
                final_only=final_only,
            )
        )

    def chat(
        self,
        messages: Sequence[Turn],
        sampling: Sampling = None,
        **options: Unpack[ChatOptions],
    ) -> Iterator[Event]:
        """As AsyncClient.chat; closing the iterator cancels the request."""
        return self._loop.iterate(lambda: self._client.chat(messages, sampling, **options))

    def embed(
        self,
        inputs: EmbedInput | Sequence[EmbedInput],
        pooling: PoolingParams | None = None,
        *,
        model: str | None = None,
        add_special_tokens: bool = True,
    ) -> Embeddings:
        """As AsyncClient.embed."""
        return self._loop.run(
            self._client.embed(inputs, pooling, model=model, add_special_tokens=add_special_tokens)
        )

    def score(
        self, queries: str | Sequence[str], documents: str | Sequence[str], **options: Any
    ) -> Scores:
        """As AsyncClient.score."""
        return self._loop.run(self._client.score(queries, documents, **options))

    def classify(
        self, inputs: EmbedInput | Sequence[EmbedInput], **options: Any
    ) -> Classifications:
        """As AsyncClient.classify."""
        return self._loop.run(self._client.classify(inputs, **options))

    def pool(self, inputs: EmbedInput | Sequence[EmbedInput], **options: Any) -> PooledOutputs:
        """As AsyncClient.pool."""
        return self._loop.run(self._client.pool(inputs, **options))

    def list_models(self) -> list[ModelInfo]:
        """Return the models that the server lists."""
        return self._loop.run(self._client.list_models())

    def tokenize(
        self,
        text: str | Sequence[Turn],
        *,
        model: str | None = None,
        add_special_tokens: bool = True,
    ) -> list[int]:
        """Return the token ids of a text or of a rendered conversation."""
        return self._loop.run(
            self._client.tokenize(text, model=model, add_special_tokens=add_special_tokens)
        )

    def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        model: str | None = None,
        skip_special_tokens: bool = False,
    ) -> str:
        """Return the text of token ids."""
        return self._loop.run(
            self._client.detokenize(token_ids, model=model, skip_special_tokens=skip_special_tokens)
        )
