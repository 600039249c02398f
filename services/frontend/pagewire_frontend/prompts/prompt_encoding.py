"""Encodes prompts to token ids, within bounds: short texts in the event loop, all others outside
it."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.models.tokenizer import TextTokenizer
from pagewire_frontend.prompts.fair_queue import FairTurns
from pagewire_frontend.prompts.generation_request import (
    ChatPrompt,
    Prompt,
    TextPrompt,
    TokenPrompt,
)
from pagewire_frontend.prompts.template_renderer import TemplateRenderer
from pagewire_frontend.prompts.text_threads import TextThreads, size_of
from pagewire_shared.errors import InvalidRequestError

LARGE_TOKENS: Final = 4096
"""A prompt of this many tokens or more waits for its turn: it costs the loop 0.1 ms per step."""


class LargePrompts:
    """Gives turns to large prompts, fairly between tenants. The event loop does other work between
    turns."""

    def __init__(self) -> None:
        self._turns = FairTurns(1)

    @asynccontextmanager
    async def turn(self, tenant: str | None, num_tokens: int) -> AsyncIterator[None]:
        """Wait for a turn, if a prompt of `num_tokens` needs one, and hold it."""
        if num_tokens < LARGE_TOKENS:
            yield
            return
        await self._turns.take(tenant)
        try:
            yield
        finally:
            self._turns.give()


SHORT_CHARS: Final = 2000
"""A text up to this length is encoded in the event loop: handing it to a thread takes longer."""
BYTES_PER_CHAR: Final = 4
"""Most memory of a character."""

CheckChars = Callable[[int], None]
"""Takes the number of characters of a text; raises if such a text cannot fit."""


class EncodedPair(NamedTuple):
    """Ids of one text or two, and the position where the second begins; 0 for none."""

    token_ids: list[int]
    second_start: int


class PromptEncoder:
    """Encodes prompts. `close` it at the end.

    Args:
        max_chars: Most characters of one text, whatever the model.
        max_bytes: Bytes of memory of all texts that wait or are worked on; raised to the minimum
            that lets one tenant have one text.
    """

    def __init__(self, *, max_chars: int, max_bytes: int) -> None:
        self._max_chars = max_chars
        self.threads = TextThreads(max(max_bytes, 2 * (BYTES_PER_CHAR * max_chars + 2**16)))
        self._templates = TemplateRenderer(self.threads.budget)

    async def start(self, models: Iterable[LoadedModel]) -> None:
        """Start the processes that the first request would wait for. Raises InternalError."""
        await self._templates.start(models)

    async def encode(
        self,
        model: LoadedModel,
        prompt: Prompt,
        *,
        tenant: str | None,
        field: str,
        check_chars: CheckChars | None = None,
    ) -> list[int]:
        """Return the ids of a prompt.

        Args:
            model: Has the tokenizer and the template.
            field: The client's name for the prompt.
            check_chars: Called before a text is tokenized.

        Raises:
            InvalidRequestError: The text is too long, or the chat template refuses it.
            OverloadedError: Too many texts wait already.
        """
        if isinstance(prompt, TokenPrompt):
            return list(prompt.token_ids)
        if isinstance(prompt, ChatPrompt):
            text = await self._templates.render(model, prompt, tenant)
            # The template writes the special tokens itself.
            has_special = False
        else:
            text, has_special = prompt.text, prompt.add_special_tokens
        if len(text) > self._max_chars:
            raise InvalidRequestError(
                f"{field}: at most {self._max_chars} characters, got {len(text)}", field=field
            )
        if check_chars is not None:
            check_chars(len(text))
        work = partial(_encode, model.tokenizer, text, has_special)
        if len(text) <= SHORT_CHARS and self.threads.may_overtake():
            return work()
        return await self.threads.run(tenant, size_of(text), work)

    async def encode_within(
        self,
        model: LoadedModel,
        prompt: TextPrompt,
        *,
        tenant: str | None,
        field: str,
        check_chars: CheckChars | None = None,
        most: int | None = None,
    ) -> EncodedPair:
        """Return the ids of a text or a pair, cut to `most` tokens as TextTokenizer.encode_within.

        Raises as `encode`, and InvalidRequestError naming truncate_prompt_tokens for too few.
        """
        texts = [prompt.text] if prompt.second is None else [prompt.text, prompt.second]
        num_chars = sum(map(len, texts))
        if num_chars > self._max_chars:
            raise InvalidRequestError(
                f"{field}: at most {self._max_chars} characters, got {num_chars}", field=field
            )
        if check_chars is not None:
            check_chars(num_chars)
        work = partial(
            model.tokenizer.encode_within,
            prompt.text,
            prompt.second,
            most=most,
            add_special_tokens=prompt.add_special_tokens,
        )
        try:
            if num_chars <= SHORT_CHARS and self.threads.may_overtake():
                return EncodedPair(*work())
            num_bytes = sum(map(size_of, texts))
            return EncodedPair(*await self.threads.run(tenant, num_bytes, work))
        except ValueError as error:
            raise InvalidRequestError(
                f"truncate_prompt_tokens: {error}", field="truncate_prompt_tokens"
            ) from error

    async def prompt_end(
        self, model: LoadedModel, arguments: Mapping[str, Any] | None, *, tenant: str | None
    ) -> str:
        """Return the text that the chat template writes before an answer. Empty for a model without
        a reasoning format, which does not need it."""
        if model.formats.reasoning is None and model.formats.harmony is None:
            return ""
        return await self._templates.prompt_end(model, arguments, tenant)

    def close(self) -> None:
        """End threads and processes."""
        self._templates.close()
        self.threads.close()


def _encode(tokenizer: TextTokenizer, text: str, has_special: bool) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=has_special)
