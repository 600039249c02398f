"""Between the messages of a frontend's stream and the core's plain data."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from pagewire_protos.common.v1 import sampling_pb2, usage_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.core.events import (
    FinishedEvent,
    PromptLogprobsEvent,
    RejectedEvent,
    TokensEvent,
    VectorEvent,
)
from pagewire_scheduler.core.frontend_state import Held
from pagewire_scheduler.core.request import Submission
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.worker_info import ModelInfo
from pagewire_scheduler.given_names_convert import given_names
from pagewire_scheduler.peers import FrontendInfo
from pagewire_shared.arrays import pack_f32, pack_u32, unpack_u32, view_u32
from pagewire_shared.beam import BeamParams, early_stopping_name
from pagewire_shared.block_hash import tenant_salt
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.ids import ID_BYTES, RequestId
from pagewire_shared.rpc.errors import to_detail
from pagewire_shared.sampling import SamplingParams
from pagewire_shared.sampling_convert import (
    beam_from_message,
    pooling_from_message,
    sampling_from_message,
)

MAX_PROMPT_VALUES: Final = 2**17
"""Log-probabilities of prompts in one message: about a megabyte."""

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
        highest_generation=hello.highest_generation,
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
    if message.HasField("adapter"):
        raise InvalidRequestError("adapters are not supported yet", field="adapter")
    # A frontend that has nothing to say about choices means one.
    emitted = message.emitted or [pb.EmittedTokens()]
    beam = _beam(message)
    prompt = view_u32(message.prompt_token_ids)
    remaining = message.remaining_ms if message.HasField("remaining_ms") else None
    return Submission(
        request_id=RequestId(message.request_id),
        epoch=message.epoch,
        handle=message.handle,
        model=message.model,
        prompt_token_ids=tuple(prompt.tolist()),
        emitted=tuple(tuple(unpack_u32(choice.token_ids)) for choice in emitted),
        is_finished=tuple(choice.is_finished for choice in emitted),
        sampling=sampling_from_message(message.sampling, defaults=_defaults(beam, len(emitted))),
        eos_token_ids=tuple(unpack_u32(message.eos_token_ids)),
        salt=tenant_salt("" if is_sharing_between_tenants else message.tenant, message.cache_salt),
        tenant=message.tenant,
        priority=message.priority,
        deadline=None if remaining is None else now + remaining / 1000,
        beam_search=beam,
        pooling=pooling_from_message(message.pool) if kind == "pool" else None,
        given_names=given_names(message, prompt),
        highest_prompt_id=int(prompt.max()) if len(prompt) else None,
    )


def _beam(message: pb.Submit) -> BeamParams | None:
    """Return what a beam search is asked for; None when sampling."""
    if not message.generate.HasField("beam_search"):
        return None
    if any(choice.token_ids or choice.is_finished for choice in message.emitted):
        raise InvalidRequestError("a beam search starts from the prompt", field="emitted")
    return beam_from_message(message.generate.beam_search)


def _defaults(beam: BeamParams | None, num_choices: int) -> SamplingParams:
    """Return what absent fields of the sampling mean.

    Those of a beam search say so, which checks its width and that nothing filters its tokens.
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
    if any(event.logprobs for event in events):
        _add_logprobs(batch, events)
    return batch


def _add_logprobs(batch: pb.TokenBatch, events: Sequence[TokensEvent]) -> None:
    entries = [
        entry for event in events for entry in (event.logprobs or [None] * len(event.token_ids))
    ]
    batch.logprobs = pack_f32([entry.logprob if entry else math.nan for entry in entries])
    batch.ranks = pack_u32([entry.rank if entry else 0 for entry in entries])
    known = [entry for entry in entries if entry]
    if any(entry.top_token_ids for entry in known):
        batch.num_top = pack_u32([len(entry.top_token_ids) if entry else 0 for entry in entries])
        batch.top_token_ids = pack_u32([t for entry in known for t in entry.top_token_ids])
        batch.top_logprobs = pack_f32([p for entry in known for p in entry.top_logprobs])


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


def vector_batch(events: Sequence[VectorEvent]) -> pb.VectorBatch:
    """Return the vectors in `events`, all of one length."""
    return pb.VectorBatch(
        handles=pack_u32([event.handle for event in events]),
        epochs=pack_u32([event.epoch for event in events]),
        num_cached_tokens=pack_u32([event.num_cached_tokens for event in events]),
        vectors=b"".join(event.vector for event in events),
    )


def finished_choices(events: Sequence[FinishedEvent]) -> pb.FinishedChoices:
    """Return the ends in `events`."""
    return pb.FinishedChoices(
        choices=[
            pb.FinishedChoice(
                handle=event.handle,
                choice=event.choice,
                epoch=event.epoch,
                num_tokens=event.num_tokens,
                reason=_REASONS[event.state],
                stop_token_id=event.stop_token_id,
                error=to_detail(event.error) if event.error else None,
                cached_tokens=[
                    usage_pb2.CachedTokens(tier=tier, num_tokens=num_tokens)
                    for tier, num_tokens in event.cached_tokens
                ],
            )
            for event in events
        ]
    )


def rejected(event: RejectedEvent) -> pb.Rejected:
    """Return the refusal of one request."""
    return pb.Rejected(handle=event.handle, epoch=event.epoch, error=to_detail(event.error))
