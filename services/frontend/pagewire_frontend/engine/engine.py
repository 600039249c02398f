"""Opens a session for a checked request, for gRPC and HTTP alike. Owns the journal, the tokenizer
threads and the limits; knows neither HTTP nor generated messages."""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pagewire_frontend.access.api_keys import current_tenant, take_ticket
from pagewire_frontend.adapters.registry import check_rank
from pagewire_frontend.engine.request_fit import (
    check_dimensions,
    check_model_limits,
    check_num_chars,
    check_prediction,
    check_prompt_ids,
    check_vocabulary,
    fit,
    num_kept,
    with_bad_sequences,
)
from pagewire_frontend.engine.tokenization import Tokenization
from pagewire_frontend.grammar.check import GrammarChecker
from pagewire_frontend.models.model_registry import LoadedModel, ModelRegistry
from pagewire_frontend.prompts.generation_request import (
    GenerationRequest,
    Prompt,
    TextPrompt,
    prompt_field,
)
from pagewire_frontend.prompts.prompt_encoding import CheckChars, LargePrompts, PromptEncoder
from pagewire_frontend.prompts.text_threads import size_of
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_frontend.session.journal import EntryState, Journal, JournalEntry
from pagewire_frontend.session.prompt_blocks import name_prompt
from pagewire_frontend.session.selection import Selection, computed
from pagewire_frontend.session.session import Session
from pagewire_frontend.traces.history import RequestHistory
from pagewire_frontend.traces.taker import TraceTaker
from pagewire_shared.errors import DeadlineError, OverloadedError, UnavailableError
from pagewire_shared.identity.ids import mint_request_id
from pagewire_shared.process.logs import FIELDS
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.priority import check_priority

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Bounds of a frontend, in requests and seconds; of one text in characters, and of all texts
    that wait to be rendered or tokenized in bytes of memory."""

    max_open_requests: int
    max_request_seconds: float
    max_wait_seconds: float
    max_text_chars: int
    max_text_bytes: int


class Engine:
    """Opens sessions and closes them; knows which models are ready."""

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
        self.large_prompts = LargePrompts()
        self._encoder = PromptEncoder(
            max_chars=limits.max_text_chars, max_bytes=limits.max_text_bytes
        )
        self.tokenization = Tokenization(self._encoder)
        self._open: set[Session] = set()
        self.history = RequestHistory()
        self.traces: TraceTaker | None = None
        """Where traces go; None for nowhere."""
        # Accepted requests without a session so far.
        self._num_opening = 0
        self._is_draining = False

    async def start(self) -> None:
        """Start the threads and processes that the first request would wait for. Raises
        InternalError."""
        await self._encoder.start(self.models)

    def is_ready(self, model: LoadedModel) -> bool:
        """Whether a request for `model` would be answered now."""
        return self._pool.is_served(model.name)

    @property
    def num_open(self) -> int:
        """Requests that are open, those without a session so far included."""
        return len(self._open) + self._num_opening

    def used_adapters(self) -> tuple[list[str], list[str]]:
        """Return the names of adapters of open requests: with output, and without any so far."""
        entries = [one.entry for one in self._open if one.entry.adapter is not None]
        names = ([], [])  # type: tuple[list[str], list[str]]
        for entry in entries:
            assert entry.adapter is not None
            names[not entry.has_output].append(entry.adapter.name)
        return names

    def numerics(self, model: LoadedModel) -> bytes:
        """Return a digest of what decides the bits of outputs; see SchedulerPool.known_numerics."""
        return self._pool.known_numerics(model.name)

    def num_workers(self, model: LoadedModel) -> int:
        """Return how many attached workers serve `model`."""
        return self._pool.num_workers(model.name)

    def drain(self) -> None:
        """Stop being ready: the process is about to end. Open requests go on."""
        self._is_draining = True

    def give_up(self) -> None:
        """End every open request with an error when the drain time is over."""
        for session in list(self._open):
            session.fail(UnavailableError("this frontend ends; ask again", retry_after_ms=0))

    def why_not_ready(self) -> str | None:
        """Return why no request would be answered now, or None."""
        if self._is_draining:
            return "this frontend is about to end"
        if any(self.is_ready(model) for model in self.models):
            return None
        return self._pool.why_not_served()

    def served_context_length(self, model: LoadedModel) -> int | None:
        """Return the longest sequence that attached workers take; None while no worker serves the
        model."""
        if not self.is_ready(model):
            return None
        return self._pool.known_context_length(model.name)

    def context_length(self, model: LoadedModel) -> int | None:
        """Return the longest sequence, as the workers report it, else from the model's files."""
        return self._pool.known_context_length(model.name) or model.context_length

    def embedding_size(self, model: LoadedModel) -> int | None:
        """Return the length of the vectors of `model`; None while it is unknown or there are no
        vectors."""
        return self._pool.known_embedding_size(model.name)

    async def tokenize(
        self,
        model: LoadedModel,
        prompt: Prompt,
        *,
        tenant: str | None,
        field: str,
        check_chars: CheckChars | None = None,
    ) -> list[int]:
        """Return the ids of a prompt; see PromptEncoder.encode."""
        return await self._encoder.encode(
            model, prompt, tenant=tenant, field=field, check_chars=check_chars
        )

    async def prompt_end(self, model: LoadedModel, arguments: Mapping[str, Any] | None) -> str:
        """Return the text that the chat template writes before an answer; see
        PromptEncoder.prompt_end."""
        return await self._encoder.prompt_end(model, arguments, tenant=current_tenant())

    async def open(self, request: GenerationRequest) -> Session:
        """Check, tokenize, journal and submit a request. `close` the session whatever happens.

        Raises:
            InvalidRequestError: A field is at fault; nothing is held.
            OverloadedError, UnavailableError, DeadlineError: The request cannot be taken now.
        """
        ticket = take_ticket()
        try:
            session = await self._admit(request)
        except BaseException:
            ticket.give_back()
            raise
        session.ticket = ticket
        return session

    async def _admit(self, request: GenerationRequest) -> Session:
        arrived_at = time.monotonic()
        check_priority(request.priority)
        check_model_limits(request)
        request.model.tasks.check(request.model.name, request.pooling)
        params, selection = computed(request.params)
        request = replace(request, params=params)
        if self.num_open >= self._limits.max_open_requests:
            raise OverloadedError("too many requests are open")
        # From here on the request counts as open, whatever it waits for.
        self._num_opening += 1
        adapter = request.model.adapter
        try:
            self.models.adapters.pin(adapter)
            try:
                return self._submit(await self._prepared(request, selection, arrived_at))
            except BaseException:
                self.models.adapters.unpin(adapter)
                raise
        finally:
            self._num_opening -= 1

    async def _prepared(
        self, request: GenerationRequest, selection: Selection | None, arrived_at: float
    ) -> Session:
        """Return a session that is not submitted, with `selection` of the computed choices."""
        seconds = self._limits.max_request_seconds
        if request.timeout_seconds is not None:
            seconds = min(seconds, request.timeout_seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._grammars.check(
                    request.model, request.params.structured_outputs, request.tenant
                )
                began_at = time.monotonic()
                request, token_ids = await self._encoded(request)
                predicted = await self._predicted(request)
                tokenize_seconds = time.monotonic() - began_at
                turn = partial(self.large_prompts.turn, request.tenant, len(token_ids))
                async with turn():
                    request = await self._checked(request, token_ids)
                await self._pool.wait_served(request.model.name, self._limits.max_wait_seconds)
                async with turn():
                    entry = await self._entry(request, token_ids)
        except TimeoutError:
            raise DeadlineError("the deadline of the request passed") from None
        if predicted is not None:
            # Tokens behind the end of an output are of no use.
            entry.predicted_token_ids = predicted[: entry.params.max_tokens]
        session = Session(
            entry,
            request.model.tokenizer,
            arrived_at=arrived_at,
            deadline=arrived_at + seconds,
            selection=selection,
            marks=request.marks,
            is_split=request.is_split,
        )
        session.meter.tokenize_began_at = began_at
        session.meter.tokenize_seconds = tokenize_seconds
        if self.traces is not None:
            session.meter.sampled_by(self.traces.policy)
        return session

    async def _checked(self, request: GenerationRequest, token_ids: list[int]) -> GenerationRequest:
        """Return the request with all its token ids checked, and its length for a known limit."""
        check_prompt_ids(request, token_ids)
        request = await self._with_token_ids(request)
        limit = self.context_length(request.model)
        if limit is not None:
            # Only its errors matter here: the limit may change while the request waits.
            fit(request, token_ids, limit)
        return request

    async def _entry(self, request: GenerationRequest, token_ids: list[int]) -> JournalEntry:
        """Return the journal entry of a request whose model is served."""
        check_dimensions(request, self.embedding_size(request.model))
        limit = self.context_length(request.model)
        if limit is None:
            raise UnavailableError(f"the context length of {request.model.name} is not known")
        token_ids, params = fit(request, token_ids, limit)
        adapter = request.model.adapter
        if adapter is not None:
            name = request.model.name
            check_rank(name, adapter.rank, self._pool.known_rank(name))
            self.models.adapters.fits.require(name, adapter.adapter_id)
        entry = _journal_entry(request, token_ids, params)
        naming = self._pool.known_naming(entry.model)
        if naming is not None:
            entry.prompt_blocks = await name_prompt(
                naming,
                token_ids,
                tenant=entry.tenant,
                cache_salt=entry.cache_salt,
                adapter_id=adapter.adapter_id if adapter is not None else b"",
            )
        return entry

    async def _encoded(self, request: GenerationRequest) -> tuple[GenerationRequest, list[int]]:
        """Return the token ids of the prompt, and the request with what is known of them."""
        prompt, pooling, limit = request.prompt, request.pooling, self.context_length(request.model)
        kept = request.params.truncate_prompt_tokens
        is_cut = kept is not None and request.model.tasks.is_encoder
        if pooling is None or not isinstance(prompt, TextPrompt):
            return request, await self._token_ids(request)
        if prompt.second is None and not is_cut:
            return request, await self._token_ids(request)
        encoded = await self._encoder.encode_within(
            request.model,
            prompt,
            tenant=request.tenant,
            field=prompt_field(request),
            check_chars=self._char_check(request, limit),
            most=num_kept(kept, limit),
        )
        params = request.params.with_(truncate_prompt_tokens=None)
        pooling = replace(pooling, second_start=encoded.second_start)
        return replace(request, params=params, pooling=pooling), encoded.token_ids

    def _char_check(self, request: GenerationRequest, limit: int | None) -> CheckChars | None:
        return partial(check_num_chars, request, limit) if limit is not None else None

    async def _token_ids(self, request: GenerationRequest) -> list[int]:
        limit = self.context_length(request.model)
        return await self.tokenize(
            request.model,
            request.prompt,
            tenant=request.tenant,
            field=prompt_field(request),
            check_chars=self._char_check(request, limit),
        )

    async def _predicted(self, request: GenerationRequest) -> list[int] | None:
        """Return the token ids of what the answer is expected to be; None for nothing."""
        if request.prediction is None:
            return None
        check_prediction(request.prediction)
        prompt = TextPrompt(request.prediction, add_special_tokens=False)
        return await self.tokenize(request.model, prompt, tenant=request.tenant, field="prediction")

    def close(self, session: Session) -> None:
        """Free everything that a session holds, here and at its scheduler; again is allowed."""
        if session.entry.state is EntryState.CLOSED:
            return
        self._open.discard(session)
        session.release()
        if _logger.isEnabledFor(logging.INFO):
            said = session.summary()
            _logger.info("%s", said.line, extra={FIELDS: said.fields})
        record = session.record()
        self.history.put(record)
        if self.traces is not None and self.traces.policy.takes(record):
            session.meter.note_traced()
            self.traces.put(record)
        session.end_measuring()
        session.ticket.give_back(session.num_tokens)
        self._pool.cancel_wait(session)
        self._journal.close(session.entry)
        self.models.adapters.unpin(session.entry.adapter)

    def shutdown(self) -> None:
        """Stop the threads, the grammar checkers and the renderers of templates."""
        self._grammars.close()
        self._encoder.close()

    async def _with_token_ids(self, request: GenerationRequest) -> GenerationRequest:
        """Return the request with its bad words as token ids; every token id in its parameters is
        checked."""
        params = request.params
        if params.bad_words:
            work = partial(with_bad_sequences, params, request.model.tokenizer)
            num_bytes = sum(map(size_of, params.bad_words))
            params = await self._encoder.threads.run(request.tenant, num_bytes, work)
        check_vocabulary(params, request.model.vocab_size)
        return replace(request, params=params)

    def _submit(self, session: Session) -> Session:
        self._journal.open(session.entry)
        try:
            self._pool.submit(session)
        except BaseException:
            session.release()
            self._journal.close(session.entry)
            raise
        self._open.add(session)
        session.meter.opened()
        return session


def _journal_entry(
    request: GenerationRequest, token_ids: list[int], params: SamplingParams
) -> JournalEntry:
    seed = params.seed if params.seed is not None else secrets.randbits(64)
    salt, pooling = request.cache_salt, request.pooling
    return JournalEntry(
        request_id=request.request_id or mint_request_id(),
        must_be_held=request.must_be_held,
        model=request.model.name,
        prompt_token_ids=token_ids,
        params=params.with_(seed=seed),
        eos_token_ids=() if params.ignore_eos or pooling else request.model.eos_token_ids,
        tenant=request.tenant,
        cache_salt=salt.encode() if salt is not None else None,
        priority=request.priority,
        pooling=pooling,
        adapter=request.model.adapter,
    )
