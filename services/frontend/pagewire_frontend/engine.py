"""What gRPC and HTTP share: from a checked request to an open session. Owns the journal, the
thread pool of the tokenizers and the limits; knows neither HTTP nor generated messages.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pagewire_frontend.grammar_check import GrammarChecker
from pagewire_frontend.journal import EntryState, Journal, JournalEntry
from pagewire_frontend.model_registry import LoadedModel, ModelRegistry
from pagewire_frontend.scheduler_pool import SchedulerPool
from pagewire_frontend.selection import computed
from pagewire_frontend.session import Session
from pagewire_shared.errors import (
    ContextLengthError,
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    UnavailableError,
)
from pagewire_shared.ids import mint_request_id
from pagewire_shared.priority import check_priority
from pagewire_shared.sampling import SamplingParams

_logger = logging.getLogger(__name__)

_TOKENIZER_THREADS = 2


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A text; the tokenizer's special tokens are added."""

    text: str
    add_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids, taken as they are."""

    token_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation, rendered by the model's chat template."""

    messages: Sequence[Mapping[str, Any]]
    add_generation_prompt: bool = True
    template_arguments: Mapping[str, Any] | None = None


Prompt = TextPrompt | TokenPrompt | ChatPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request. `params.max_tokens` None takes the rest of the context."""

    model: LoadedModel
    prompt: Prompt
    params: SamplingParams
    tenant: str | None = None
    cache_salt: str | None = None
    priority: int = 0
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of a frontend, in requests and seconds."""

    max_open_requests: int
    max_request_seconds: float
    max_wait_seconds: float


class Engine:
    """Opens sessions."""

    def __init__(
        self,
        models: ModelRegistry,
        pool: SchedulerPool,
        journal: Journal,
        limits: EngineLimits,
    ) -> None:
        self.models = models
        self._pool = pool
        self._journal = journal
        self._limits = limits
        self._grammars = GrammarChecker()
        self._threads = ThreadPoolExecutor(_TOKENIZER_THREADS, thread_name_prefix="tokenizer")

    def is_ready(self, model: LoadedModel) -> bool:
        """Whether a request for `model` would be answered now."""
        return self._pool.is_served(model.name)

    def why_not_ready(self) -> str | None:
        """Return why no request would be answered now, or None."""
        if any(self.is_ready(model) for model in self.models):
            return None
        return self._pool.why_not_served()

    def served_context_length(self, model: LoadedModel) -> int | None:
        """Return the longest sequence that attached workers take; None while none serves it."""
        if not self.is_ready(model):
            return None
        return self._pool.known_context_length(model.name)

    def context_length(self, model: LoadedModel) -> int | None:
        """Return the longest sequence: as the workers say, else as the model's files say."""
        return self._pool.known_context_length(model.name) or model.context_length

    async def tokenize(self, model: LoadedModel, prompt: Prompt) -> list[int]:
        """Return the ids of a prompt, working on text outside the event loop."""
        if isinstance(prompt, TokenPrompt):
            return list(prompt.token_ids)
        loop = asyncio.get_running_loop()
        if isinstance(prompt, ChatPrompt):
            return await loop.run_in_executor(self._threads, _encode_chat, model, prompt)
        return await loop.run_in_executor(self._threads, _encode_text, model, prompt)

    async def open(self, request: GenerationRequest) -> Session:
        """Check, tokenize, journal and submit a request. `close` it whatever happens.

        Raises:
            InvalidRequestError: A field is at fault; nothing is held.
            OverloadedError, UnavailableError, DeadlineError: It cannot be taken now.
        """
        arrived_at = time.monotonic()
        check_priority(request.priority)
        computed(request.params)
        seconds = self._limits.max_request_seconds
        if request.timeout_seconds is not None:
            seconds = min(seconds, request.timeout_seconds)
        if len(self._journal) >= self._limits.max_open_requests:
            raise OverloadedError("too many requests are open")
        try:
            async with asyncio.timeout(seconds):
                await self._grammars.check(request.model, request.params.structured_outputs)
                token_ids = await self.tokenize(request.model, request.prompt)
                _check_ids(request, token_ids)
                limit = self.context_length(request.model)
                if limit is not None:
                    _fit(request, len(token_ids), limit)
                await self._pool.wait_served(request.model.name, self._limits.max_wait_seconds)
        except TimeoutError:
            raise DeadlineError("the deadline of the request passed") from None
        limit = self.context_length(request.model)
        if limit is None:
            raise UnavailableError(f"the context length of {request.model.name} is not known")
        params, selection = computed(_fit(request, len(token_ids), limit))
        entry = _journal_entry(request, token_ids, params)
        session = Session(
            entry,
            request.model.tokenizer,
            arrived_at=arrived_at,
            deadline=arrived_at + seconds,
            selection=selection,
        )
        return self._submit(session)

    def close(self, session: Session) -> None:
        """Free everything a session holds, here and everywhere; again is allowed."""
        if session.entry.state is EntryState.CLOSED:
            return
        session.stop_timer()
        if _logger.isEnabledFor(logging.INFO):
            _logger.info("%s", session.summary())
        self._pool.withdraw(session)
        self._journal.close(session.entry)

    def shutdown(self) -> None:
        """Stop the threads and the grammar checkers."""
        self._grammars.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _submit(self, session: Session) -> Session:
        self._journal.open(session.entry)
        try:
            self._pool.submit(session)
        except BaseException:
            session.stop_timer()
            self._journal.close(session.entry)
            raise
        return session


def _encode_text(model: LoadedModel, prompt: TextPrompt) -> list[int]:
    return model.tokenizer.encode(prompt.text, add_special_tokens=prompt.add_special_tokens)


def _encode_chat(model: LoadedModel, prompt: ChatPrompt) -> list[int]:
    if model.chat_template is None:
        raise InvalidRequestError(
            f"{model.name} has no chat template; ask for a completion", field="messages"
        )
    text = model.chat_template.render(
        prompt.messages,
        add_generation_prompt=prompt.add_generation_prompt,
        arguments=prompt.template_arguments,
    )
    # The template writes the special tokens itself.
    return model.tokenizer.encode(text, add_special_tokens=False)


def _prompt_field(prompt: Prompt) -> str:
    return "messages" if isinstance(prompt, ChatPrompt) else "prompt"


def _check_ids(request: GenerationRequest, token_ids: Sequence[int]) -> None:
    field = _prompt_field(request.prompt)
    if not token_ids:
        raise InvalidRequestError(f"{field} must not be empty", field=field)
    if not isinstance(request.prompt, TokenPrompt):
        return
    size = request.model.vocab_size
    if min(token_ids) < 0 or max(token_ids) >= size:
        raise InvalidRequestError(f"{field}: token ids must be in [0, {size})", field=field)


def _fit(request: GenerationRequest, num_prompt: int, limit: int) -> SamplingParams:
    """Return the parameters with max_tokens set. Raises ContextLengthError."""
    room = limit - num_prompt
    if room < 1:
        raise ContextLengthError(
            f"the context has {limit} tokens, the prompt {num_prompt}; "
            "at least one is needed for the answer",
            field=_prompt_field(request.prompt),
        )
    wanted = request.params.max_tokens
    if wanted is not None and wanted > room:
        raise ContextLengthError(
            f"max_tokens is {wanted}, but a context of {limit} tokens has room for {room} "
            f"after a prompt of {num_prompt}",
            field="max_tokens",
        )
    return request.params.with_(max_tokens=wanted if wanted is not None else room)


def _journal_entry(
    request: GenerationRequest, token_ids: list[int], params: SamplingParams
) -> JournalEntry:
    seed = params.seed if params.seed is not None else secrets.randbits(64)
    salt = request.cache_salt
    return JournalEntry(
        request_id=mint_request_id(),
        model=request.model.name,
        prompt_token_ids=token_ids,
        params=params.with_(seed=seed),
        eos_token_ids=() if params.ignore_eos else request.model.eos_token_ids,
        tenant=request.tenant,
        cache_salt=salt.encode() if salt is not None else None,
        priority=request.priority,
    )
