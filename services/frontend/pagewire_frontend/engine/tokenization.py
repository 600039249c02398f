"""Tokenizes and detokenizes for clients that ask for it: the same checks and bounds for HTTP and
gRPC."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.models.content import text_of
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.generation_request import ChatPrompt, Prompt, TextPrompt
from pagewire_frontend.prompts.prompt_encoding import PromptEncoder
from pagewire_shared.errors import InvalidRequestError, OverloadedError

MAX_TEXT_CHARS = 4 * 2**20
MAX_TOKENS = 2**19
MAX_WAITING = 64
# Size of one id in a Python list.
_BYTES_PER_ID = 8

Result = TypeVar("Result")


class Tokenization:
    """Tokenizes and detokenizes on the threads and within the bounds of prompts."""

    def __init__(self, encoder: PromptEncoder) -> None:
        self._encoder = encoder
        self._num_waiting = 0

    async def tokenize(self, model: LoadedModel, prompt: Prompt, *, field: str) -> list[int]:
        """Return the ids of a text, which the client calls `field`, or of a conversation.

        Raises:
            InvalidRequestError: Too long, or the model has no chat template.
            OverloadedError: Too many texts wait already.
        """
        if isinstance(prompt, TextPrompt):
            _check_size(field, len(prompt.text), MAX_TEXT_CHARS, "characters")
        elif isinstance(prompt, ChatPrompt):
            field = "messages"
            num_chars = sum(len(text_of(turn["content"])) for turn in prompt.messages)
            _check_size(field, num_chars, MAX_TEXT_CHARS, "characters")
        with self._waiting():
            return await self._encoder.encode(model, prompt, tenant=current_tenant(), field=field)

    async def detokenize(
        self,
        model: LoadedModel,
        token_ids: Sequence[int],
        *,
        field: str,
        skip_special_tokens: bool,
    ) -> str:
        """Return the text of ids; `field` is the client's name for them.

        Raises:
            InvalidRequestError: An id that the model does not have, or too many ids.
            OverloadedError: Too many texts wait already.
        """
        _check_size(field, len(token_ids), MAX_TOKENS, "ids")
        if token_ids and not 0 <= min(token_ids) <= max(token_ids) < model.vocab_size:
            raise InvalidRequestError(
                f"{field}: ids must be in [0, {model.vocab_size})", field=field
            )
        ids = list(token_ids)
        return await self._run(
            ids, lambda: model.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        )

    async def names(self, model: LoadedModel, token_ids: Sequence[int]) -> list[str]:
        """Return the vocabulary's spelling of every id. Raises OverloadedError."""
        return await self._run(
            token_ids, lambda: [model.tokenizer.name_of(item) for item in token_ids]
        )

    async def _run(self, ids: Sequence[int], work: Callable[[], Result]) -> Result:
        with self._waiting():
            num_bytes = _BYTES_PER_ID * len(ids)
            return await self._encoder.threads.run(current_tenant(), num_bytes, work)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Count one more waiting text while inside. Raises OverloadedError."""
        if self._num_waiting >= MAX_WAITING:
            raise OverloadedError("too many texts wait for the tokenizer")
        self._num_waiting += 1
        try:
            yield
        finally:
            self._num_waiting -= 1


def _check_size(field: str, size: int, most: int, unit: str) -> None:
    if size > most:
        raise InvalidRequestError(f"{field}: at most {most} {unit}, got {size}", field=field)
