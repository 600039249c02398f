"""Converts between the messages of a frontend's stream and the core's plain data."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from pagewire_protos.common.v1 import audit_pb2, error_pb2, sampling_pb2, usage_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.convert.adapters import adapter_of, adapter_sources, shape_messages
from pagewire_scheduler.convert.given_names import given_names
from pagewire_scheduler.core.data.events import (
    FinishedEvent,
    PromptLogprobsEvent,
    RejectedEvent,
    TokensEvent,
    VectorEvent,
)
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.token_logprobs import OutputLogprobs
from pagewire_scheduler.core.data.worker_info import ModelInfo
from pagewire_scheduler.core.state.frontend import Held
from pagewire_scheduler.peers.peers import FrontendInfo
from pagewire_shared.convert import finding
from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.identity.ids import ID_BYTES, RequestId
from pagewire_shared.kv.arrays import array_u32, pack_f32, pack_u32, unpack_u32, view_u32
from pagewire_shared.kv.block_hash import tenant_salt
from pagewire_shared.rpc.errors import to_detail
from pagewire_shared.sampling.beam import BeamParams, early_stopping_name
from pagewire_shared.sampling.convert import (
    beam_from_message,
    pooling_from_message,
    sampling_from_message,
)
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.weights.convert import version_from_message

MAX_PROMPT_VALUES: Final = 2**17
"""Log-probabilities of prompts in one message: about a megabyte."""

PIECE_BYTES: Final = 2**20
"""Target size of a message to a frontend; only a part that cannot be split is larger."""

MAX_FINDINGS: Final = 1000
"""Findings sent of an audit that is too large for a message."""

MAX_ERROR_CHARS: Final = 4096
"""Longest error message sent to a frontend."""

# Bytes in the arrays of a TokenBatch: per chunk; per token with its log-probability, rank and
# number of alternatives; per alternative.
_CHUNK_BYTES: Final = 24
_SCORED_TOKEN_BYTES: Final = 16
_ALTERNATIVE_BYTES: Final = 8

_DEFAULTS = SamplingParams(max_tokens=None)
_REASONS = {
    State.FINISHED_STOPPED: sampling_pb2.FINISH_REASON_STOP,
    State.FINISHED_LENGTH: sampling_pb2.FINISH_REASON_LENGTH,
    State.FINISHED_ABORTED: sampling_pb2.FINISH_REASON_ABORTED,
    State.FINISHED_FAILED: sampling_pb2.FINISH_REASON_FAILED,
}


def frontend_info(hello: pb.FrontendHello) -> FrontendInfo:
    """Return the hello as plain data. Raises WireError on torn arrays."""
    return FrontendInfo(
        frontend_id=hello.frontend_id,
        cell=hello.cell,
        tokenizers={model.name: model.tokenizer_fingerprint for model in hello.models},
        held_generation=hello.held_generation if hello.HasField("held_generation") else None,
        held=tuple(
            Held(
                RequestId(held.request_id),
                held.epoch,
                held.handle,
                tuple(unpack_u32(held.next_positions)),
            )
            for held in hello.held
        ),
    )


def submission(
    message: pb.Submit, now: float, *, is_sharing_between_tenants: bool = False
) -> Submission:
    """Return the request as plain data, its deadline on the clock of `now`.

    Tenants find each other's prefixes only with `is_sharing_between_tenants`.

    Raises:
        InvalidRequestError: A field is not supported or out of bounds.
        WireError: A torn array.
    """
    if len(message.request_id) != ID_BYTES:
        raise InvalidRequestError(f"request_id needs {ID_BYTES} bytes", field="request_id")
    kind = message.WhichOneof("kind")
    if kind is None:
        raise InvalidRequestError("kind is required: generate or pool", field="kind")
    # A Submit without entries for choices means one choice.
    emitted = message.emitted or [pb.EmittedTokens()]
    beam = _beam(message)
    sampling = sampling_from_message(message.sampling, defaults=_defaults(beam, len(emitted)))
    if kind == "generate" and sampling.seed is None and not sampling.is_greedy:
        # A worker would fail the step with all its sequences.
        raise InvalidRequestError("sampling needs a seed, which frontends draw", field="seed")
    prompt = view_u32(message.prompt_token_ids)
    remaining = message.remaining_ms if message.HasField("remaining_ms") else None
    return Submission(
        request_id=RequestId(message.request_id),
        epoch=message.epoch,
        handle=message.handle,
        model=message.model,
        prompt_token_ids=array_u32(message.prompt_token_ids),
        emitted=tuple(array_u32(choice.token_ids) for choice in emitted),
        is_finished=tuple(choice.is_finished for choice in emitted),
        sampling=sampling,
        eos_token_ids=tuple(unpack_u32(message.eos_token_ids)),
        salt=tenant_salt("" if is_sharing_between_tenants else message.tenant, message.cache_salt),
        tenant=message.tenant,
        priority=message.priority,
        deadline=None if remaining is None else now + remaining / 1000,
        age=message.age_ms / 1000,
        beam_search=beam,
        pooling=pooling_from_message(message.pool) if kind == "pool" else None,
        given_names=given_names(message, prompt),
        adapter=adapter_of(message),
        adapter_sources=adapter_sources(message),
        predicted_token_ids=array_u32(message.predicted_token_ids),
        cache_bytes=message.cache_bytes if message.HasField("cache_bytes") else None,
        must_be_held=message.must_be_held,
        weights=version_from_message(message.weights) if message.HasField("weights") else None,
        is_traced=message.is_traced,
        highest_prompt_id=int(prompt.max()) if len(prompt) else None,
    )


def _beam(message: pb.Submit) -> BeamParams | None:
    """Return the parameters of a beam search; None when sampling."""
    if not message.generate.HasField("beam_search"):
        return None
    if any(choice.token_ids or choice.is_finished for choice in message.emitted):
        raise InvalidRequestError("a beam search starts from the prompt", field="emitted")
    return beam_from_message(message.generate.beam_search)


def _defaults(beam: BeamParams | None, num_choices: int) -> SamplingParams:
    """Return the values of absent sampling fields.

    With `use_beam_search` set, validation checks the width and that no filter is on the tokens.
    """
    if beam is None:
        return _DEFAULTS
    return _DEFAULTS.with_(
        n=num_choices,
        use_beam_search=True,
        length_penalty=beam.length_penalty,
        early_stopping=early_stopping_name(beam.early_stopping),
    )


def served_models(models: Sequence[tuple[ModelInfo, int]]) -> pb.ServedModels:
    """Return the wire form of the models served and their numbers of workers."""
    return pb.ServedModels(
        models=[
            pb.ServedModel(
                name=model.name,
                model_fingerprint=model.model_fingerprint,
                tokenizer_fingerprint=model.tokenizer_fingerprint,
                max_model_len=model.max_model_len,
                num_workers=num_workers,
                embedding_size=model.embedding_size,
                max_adapter_rank=model.max_adapter_rank,
                max_adapters=model.max_adapters,
                is_exact=model.is_exact,
                adapter_shapes=shape_messages(model),
                namings=[
                    pb.BlockNaming(
                        layout_fingerprint=naming.layout_fingerprint,
                        dtype=naming.dtype,
                        block_size=naming.block_size,
                        is_by_tenant=naming.is_by_tenant,
                    )
                    for naming in model.namings
                ],
            )
            for model, num_workers in models
        ]
    )


def token_batches(events: Iterable[TokensEvent]) -> Iterator[pb.TokenBatch]:
    """Yield the tokens of `events`, in messages of a bounded size."""
    group: list[TokensEvent] = []
    num_bytes = 0
    for event in events:
        for portion, size in _token_portions(event):
            if group and num_bytes + size > PIECE_BYTES:
                yield token_batch(group)
                group, num_bytes = [], 0
            group.append(portion)
            num_bytes += size
    if group:
        yield token_batch(group)


def _token_portions(event: TokensEvent) -> Iterator[tuple[TokensEvent, int]]:
    """Yield (part of the event that fits a message, its largest number of bytes there)."""
    num_tokens = len(event.token_ids)
    if event.logprobs is None:
        # Includes log-probabilities: another event of the message may need the arrays.
        size = _CHUNK_BYTES + _SCORED_TOKEN_BYTES * num_tokens
        if size <= PIECE_BYTES:
            yield event, size
            return
        sizes = [_SCORED_TOKEN_BYTES] * num_tokens
    else:
        first = event.first_position
        num_top = event.logprobs.num_top(first, first + num_tokens)
        sizes = [_SCORED_TOKEN_BYTES + _ALTERNATIVE_BYTES * num for num in num_top]
    begin, size = 0, _CHUNK_BYTES
    for index, more in enumerate(sizes):
        if index > begin and size + more > PIECE_BYTES:
            yield _between(event, begin, index), size
            begin, size = index, _CHUNK_BYTES
        size += more
    yield _between(event, begin, num_tokens), size


def _between(event: TokensEvent, begin: int, end: int) -> TokensEvent:
    return event._replace(
        first_position=event.first_position + begin,
        token_ids=event.token_ids[begin:end],
    )


def token_batch(events: Sequence[TokensEvent]) -> pb.TokenBatch:
    """Return the tokens of `events` as one struct of arrays."""
    batch = pb.TokenBatch(
        handles=pack_u32([event.handle for event in events]),
        choices=pack_u32([event.choice for event in events]),
        epochs=pack_u32([event.epoch for event in events]),
        first_positions=pack_u32([event.first_position for event in events]),
        counts=pack_u32([len(event.token_ids) for event in events]),
        token_ids=pack_u32([token for event in events for token in event.token_ids]),
        num_cached_tokens=pack_u32([event.num_cached_tokens for event in events]),
    )
    if any(event.logprobs is not None for event in events):
        _add_logprobs(batch, events)
    return batch


def _add_logprobs(batch: pb.TokenBatch, events: Sequence[TokensEvent]) -> None:
    logprobs, ranks = array("f"), array("I")
    num_top: list[int] = []
    top_token_ids, top_logprobs = array("I"), array("f")
    for event in events:
        first, known = event.first_position, event.logprobs
        end = first + len(event.token_ids)
        if known is None:
            known, end = OutputLogprobs(end - first), end - first
            first = 0
        tops = known.tops(first, end)
        if end - first == 1:  # as nearly always
            logprobs.append(known.logprobs[first])
            ranks.append(known.ranks[first])
            num_top.append(tops.stop - tops.start)
        else:
            logprobs += known.logprobs[first:end]
            ranks += known.ranks[first:end]
            num_top += known.num_top(first, end)
        if tops.start < tops.stop:
            top_token_ids += known.top_token_ids[tops]
            top_logprobs += known.top_logprobs[tops]
    batch.logprobs = pack_f32(logprobs)
    batch.ranks = pack_u32(ranks)
    if top_token_ids:
        batch.num_top = pack_u32(num_top)
        batch.top_token_ids = pack_u32(top_token_ids)
        batch.top_logprobs = pack_f32(top_logprobs)


def prompt_batches(events: Sequence[PromptLogprobsEvent]) -> Iterator[pb.PromptLogprobBatch]:
    """Yield the log-probabilities of prompts, in messages of a bounded size."""
    group: list[PromptLogprobsEvent] = []
    num_values = 0
    for event in chain.from_iterable(map(_portions, events)):
        size = len(event.piece.logprobs) * (1 + event.piece.num_top)
        if group and num_values + size > MAX_PROMPT_VALUES:
            yield _prompt_batch(group)
            group, num_values = [], 0
        group.append(event)
        num_values += size
    if group:
        yield _prompt_batch(group)


def _portions(event: PromptLogprobsEvent) -> Iterator[PromptLogprobsEvent]:
    piece = event.piece
    size = max(1, MAX_PROMPT_VALUES // (1 + piece.num_top))
    for start in range(piece.first_position, piece.end, size):
        yield replace(event, piece=piece.between(start, start + size))


def _prompt_batch(events: Sequence[PromptLogprobsEvent]) -> pb.PromptLogprobBatch:
    pieces = [event.piece for event in events]
    return pb.PromptLogprobBatch(
        handles=pack_u32([event.handle for event in events]),
        epochs=pack_u32([event.epoch for event in events]),
        first_positions=pack_u32([piece.first_position for piece in pieces]),
        counts=pack_u32([len(piece.logprobs) for piece in pieces]),
        logprobs=pack_f32(chain.from_iterable(piece.logprobs for piece in pieces)),
        ranks=pack_u32(chain.from_iterable(piece.ranks for piece in pieces)),
        num_top=pack_u32([piece.num_top for piece in pieces for _ in piece.logprobs]),
        top_token_ids=pack_u32(chain.from_iterable(piece.top_token_ids for piece in pieces)),
        top_logprobs=pack_f32(chain.from_iterable(piece.top_logprobs for piece in pieces)),
    )


def vector_batches(events: Iterable[VectorEvent]) -> Iterator[pb.VectorBatch]:
    """Yield the vectors in `events`, in messages of a bounded size and one length of vectors."""
    by_length: dict[int, list[VectorEvent]] = {}
    for event in events:
        by_length.setdefault(len(event.vector), []).append(event)
    for length, same in by_length.items():
        size = max(1, PIECE_BYTES // (length + _CHUNK_BYTES))
        for start in range(0, len(same), size):
            yield _vector_batch(same[start : start + size])


def _vector_batch(events: Sequence[VectorEvent]) -> pb.VectorBatch:
    return pb.VectorBatch(
        handles=pack_u32([event.handle for event in events]),
        epochs=pack_u32([event.epoch for event in events]),
        num_cached_tokens=pack_u32([event.num_cached_tokens for event in events]),
        vectors=b"".join(event.vector for event in events),
    )


def finished_messages(events: Iterable[FinishedEvent]) -> Iterator[pb.FinishedChoices]:
    """Yield the ends in `events`, in messages of a bounded size."""
    group: list[pb.FinishedChoice] = []
    num_bytes = 0
    for event in events:
        choice = _finished_choice(event)
        size = choice.ByteSize() + _CHUNK_BYTES
        if group and num_bytes + size > PIECE_BYTES:
            yield pb.FinishedChoices(choices=group)
            group, num_bytes = [], 0
        group.append(choice)
        num_bytes += size
    if group:
        yield pb.FinishedChoices(choices=group)


def _finished_choice(event: FinishedEvent) -> pb.FinishedChoice:
    return pb.FinishedChoice(
        handle=event.handle,
        choice=event.choice,
        epoch=event.epoch,
        num_tokens=event.num_tokens,
        reason=_REASONS[event.state],
        stop_token_id=event.stop_token_id,
        error=_detail(event.error) if event.error else None,
        cached_tokens=[
            usage_pb2.CachedTokens(tier=tier, num_tokens=num_tokens)
            for tier, num_tokens in event.cached_tokens
        ],
        num_accepted_predicted=event.num_accepted_predicted,
        num_rejected_predicted=event.num_rejected_predicted,
    )


def rejected(event: RejectedEvent) -> pb.Rejected:
    """Return the refusal of one request."""
    return pb.Rejected(handle=event.handle, epoch=event.epoch, error=_detail(event.error))


def _detail(error: PagewireError) -> error_pb2.ErrorDetail:
    detail = to_detail(error)
    if len(detail.message) > MAX_ERROR_CHARS:
        detail.message = detail.message[:MAX_ERROR_CHARS] + "..."
    return detail


def shortened(report: audit_pb2.AuditReport) -> audit_pb2.AuditReport:
    """Return the head of a report that is too large for a message: the first findings, which are
    the scheduler's, and a finding with the number left out."""
    first = report.findings[:MAX_FINDINGS]
    num_left_out = len(report.findings) - len(first)
    more = finding("scheduler", "too_many", f"{num_left_out} findings more are left out")
    return audit_pb2.AuditReport(generation=report.generation, findings=[*first, more])
