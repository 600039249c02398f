"""Converts between the messages of AttachFrontend and plain data. Besides the link no other module
knows these messages."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pagewire_frontend.metrics.model_load import ModelLoad
from pagewire_frontend.metrics.timeline import CachedTiers, CellTimeline
from pagewire_frontend.scheduler.moment_convert import moments_of
from pagewire_frontend.session.events import FinishReason
from pagewire_frontend.session.journal_records import (
    HeldRecord,
    HeldResources,
    Score,
    SubmitRecord,
    TokenLogprob,
)
from pagewire_protos.common.v1 import audit_pb2, sampling_pb2, timeline_pb2
from pagewire_protos.scheduler.v1 import cell_metrics_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.convert import finding, protocol_range
from pagewire_shared.errors import WireError
from pagewire_shared.identity.ids import short
from pagewire_shared.kv.arrays import pack_u32, require_one_length, unpack_f32, unpack_u32
from pagewire_shared.kv.transport_convert import transport_from_message
from pagewire_shared.sampling.convert import (
    beam_to_message,
    pooling_to_message,
    sampling_to_message,
)
from pagewire_shared.weights.convert import version_from_message, version_to_message
from pagewire_shared.weights.version import WeightsVersion

JOINED_BYTES: Final = 256 * 1024
"""Bytes of submits that share a message."""


def model_loads(message: cell_metrics_pb2.CellMetrics) -> dict[str, ModelLoad]:
    """Return the loads by served name."""
    return {one.model: _load(one) for one in message.models}


def _load(message: cell_metrics_pb2.ModelMetrics) -> ModelLoad:
    return ModelLoad(
        num_running=message.num_running,
        num_waiting_for_capacity=message.num_waiting_for_capacity,
        num_waiting_for_adapter=message.num_waiting_for_adapter,
        num_waiting_for_grammar=message.num_waiting_for_grammar,
        num_waiting_for_kv=message.num_waiting_for_kv,
        num_waiting_for_trial=message.num_waiting_for_trial,
        num_workers=message.num_workers,
        num_blocks=message.num_blocks,
        num_used_blocks=message.num_used_blocks,
        block_size=message.block_size,
        steps_by_tokens=tuple(message.steps_by_tokens),
        num_step_tokens=message.num_step_tokens,
    )


MICROSECONDS = 1e-6


def timelines(batch: pb.TimelineBatch) -> Iterator[tuple[int, int, int, CellTimeline]]:
    """Yield (handle, epoch, choice, timeline). Raises WireError for a repeated tier."""
    for item in batch.timelines:
        yield item.handle, item.epoch, item.choice, _timeline(item.timeline)


def _timeline(message: timeline_pb2.ChoiceTimeline) -> CellTimeline:
    # A transport that this version does not know is left out.
    transport = transport_from_message(message.transport) if message.HasField("transport") else None
    return CellTimeline(
        queue_seconds=message.queue_us * MICROSECONDS,
        queue_waits=_queue_waits(message),
        paused_seconds=message.paused_us * MICROSECONDS,
        prefill_seconds=message.prefill_us * MICROSECONDS,
        transfer_seconds=message.transfer_us * MICROSECONDS,
        transfer_bytes=message.transfer_bytes,
        transport=None if transport is None else transport.value,
        num_preemptions=message.num_preemptions,
        num_migrations=message.num_migrations,
        num_recoveries=message.num_recoveries,
        is_handed_off=message.is_handed_off,
        cached_tiers=cached_tiers(message),
        moments=moments_of(message),
    )


_QUEUE_REASONS: dict[int, str] = {
    timeline_pb2.QUEUE_REASON_CAPACITY: "capacity",
    timeline_pb2.QUEUE_REASON_WORKER: "worker",
    timeline_pb2.QUEUE_REASON_SLEEP: "sleep",
    timeline_pb2.QUEUE_REASON_TENANTS: "tenants",
    timeline_pb2.QUEUE_REASON_STEP: "step",
    timeline_pb2.QUEUE_REASON_ADAPTER: "adapter",
    timeline_pb2.QUEUE_REASON_GRAMMAR: "grammar",
    timeline_pb2.QUEUE_REASON_TRIAL: "trial",
}


def _queue_waits(message: timeline_pb2.ChoiceTimeline) -> dict[str, float]:
    # Reasons that this version does not know are left out; they are in the sum.
    return {
        _QUEUE_REASONS[wait.reason]: wait.wait_us * MICROSECONDS
        for wait in message.queue_waits
        if wait.reason in _QUEUE_REASONS
    }


_REASONS = {
    sampling_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    sampling_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
    sampling_pb2.FINISH_REASON_ABORTED: FinishReason.ABORTED,
    sampling_pb2.FINISH_REASON_FAILED: FinishReason.FAILED,
}


MAX_FINDINGS = 1000
"""Most findings of this frontend in its answer to an audit."""

TokenChunk = tuple[int, int, int, int, list[int], list[TokenLogprob], int]
"""Handle, epoch, choice, first position, token ids, log-probabilities (none, or one per token) and
cached tokens of a chunk. A plain tuple: one is made per stream and step."""


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """Scores of consecutive positions of one prompt from a PromptLogprobBatch."""

    handle: int
    epoch: int
    first_position: int
    scores: tuple[Score, ...]


def hello_message(
    *,
    frontend_id: bytes,
    highest_generation: int,
    fingerprints: Iterable[tuple[str, bytes]],
    held_generation: int | None,
    held: Iterable[HeldRecord],
    cell: str = "",
) -> pb.AttachFrontendRequest:
    """Return the first message of a stream.

    Args:
        highest_generation: Highest generation of `cell` that this frontend has met.
        fingerprints: Served name and tokenizer fingerprint of each model.
        held_generation: Generation of `cell` that has the held requests; None without any.
        held: Requests that the scheduler may still have.
        cell: Id of the cell; empty before the first welcome.
    """
    hello = pb.FrontendHello(
        protocol=protocol_range(),
        frontend_id=frontend_id,
        highest_generation=highest_generation,
        models=[pb.FrontendModel(name=n, tokenizer_fingerprint=f) for n, f in fingerprints],
        held_generation=held_generation,
        held=[
            pb.HeldRequest(
                request_id=record.request_id,
                epoch=record.epoch,
                handle=record.handle,
                next_positions=pack_u32(record.next_positions),
            )
            for record in held
        ],
        cell=cell,
    )
    return pb.AttachFrontendRequest(hello=hello)


def submit_message(
    record: SubmitRecord, remaining_ms: int | None, age_ms: int, cache_bytes: int | None = None
) -> pb.AttachFrontendRequest:
    """Return a request in full."""
    submit = pb.Submit(
        request_id=record.request_id,
        epoch=record.epoch,
        handle=record.handle,
        model=record.model,
        prompt_token_ids=pack_u32(record.prompt_token_ids),
        emitted=[
            pb.EmittedTokens(token_ids=pack_u32(ids), is_finished=is_finished)
            for ids, is_finished in record.emitted
        ],
        sampling=sampling_to_message(record.params),
        eos_token_ids=pack_u32(record.eos_token_ids),
        tenant=record.tenant,
        cache_salt=record.cache_salt,
        priority=record.priority,
        remaining_ms=remaining_ms,
        age_ms=age_ms,
        predicted_token_ids=pack_u32(record.predicted_token_ids),
        must_be_held=record.must_be_held,
        cache_bytes=cache_bytes,
        weights=None if record.weights is None else version_to_message(record.weights),
        is_traced=record.is_traced,
    )
    if record.adapter is not None:
        submit.adapter = record.adapter.adapter_id
        submit.adapter_sources.extend(record.adapter.sources)
    if (blocks := record.prompt_blocks) is not None:
        named = pb.PromptBlocks(root=blocks.root, block_size=blocks.block_size, names=blocks.names)
        submit.prompt_blocks.CopyFrom(named)
    if record.pooling is not None:
        submit.pool.CopyFrom(pooling_to_message(record.pooling))
    else:
        beam_search = beam_to_message(beam) if (beam := record.params.beam) else None
        submit.generate.CopyFrom(pb.GenerateKind(beam_search=beam_search))
    return pb.AttachFrontendRequest(submit=submit)


def begun_requests(batch: pb.BegunBatch) -> Iterator[tuple[int, int, WeightsVersion]]:
    """Yield handle, epoch and weights of the requests whose output begins."""
    for one in batch.requests:
        yield one.handle, one.epoch, version_from_message(one.weights)


def joined_submits(
    messages: Iterator[pb.AttachFrontendRequest],
) -> Iterator[pb.AttachFrontendRequest]:
    """Yield messages of several submits, of JOINED_BYTES at most; a larger one comes alone."""
    joined, num_bytes = pb.AttachFrontendRequest(), 0
    for message in messages:
        size = message.ByteSize()
        if num_bytes and num_bytes + size > JOINED_BYTES:
            yield joined
            joined, num_bytes = pb.AttachFrontendRequest(), 0
        if size > JOINED_BYTES:
            yield message
        else:
            joined.submits.submits.append(message.submit)
            num_bytes += size
    if num_bytes:
        yield joined


def abort_message(handle: int, choice: int | None = None) -> pb.AttachFrontendRequest:
    """Return an abort of a request or of one choice."""
    return pb.AttachFrontendRequest(abort=pb.Abort(handle=handle, choice=choice))


def reset_prefix_cache_message(query_id: int, model: str | None) -> pb.AttachFrontendRequest:
    """Return the question that makes a scheduler forget cached prefixes; `model` None for all."""
    query = pb.ResetPrefixCacheQuery(query_id=query_id, model=model)
    return pb.AttachFrontendRequest(reset_prefix_cache=query)


def audit_reply_message(
    query_id: int, frontend_id: bytes, holdings: HeldResources
) -> pb.AttachFrontendRequest:
    """Return the answer to an audit query."""
    process = f"frontend {short(frontend_id)}"
    audit = audit_pb2.FrontendAudit(
        frontend=frontend_id.hex(),
        num_open_streams=holdings.num_open_streams,
        num_handles=holdings.num_handles,
        num_resumed=holdings.num_resumed,
        findings=[
            finding(process, item.kind, item.detail) for item in holdings.findings[:MAX_FINDINGS]
        ],
    )
    reply = pb.FrontendAuditReply(query_id=query_id, audit=audit)
    return pb.AttachFrontendRequest(audit_reply=reply)


@dataclass(frozen=True, slots=True)
class VectorItem:
    """The vector of one request, as little-endian f32."""

    handle: int
    epoch: int
    vector: bytes
    num_cached_tokens: int


def vector_items(batch: pb.VectorBatch) -> Iterator[VectorItem]:
    """Yield the vectors of a step. Raises WireError when arrays disagree in length."""
    handles, epochs = unpack_u32(batch.handles), unpack_u32(batch.epochs)
    cached = unpack_u32(batch.num_cached_tokens)
    require_one_length(handles=handles, epochs=epochs, num_cached_tokens=cached)
    if not handles or not batch.vectors or len(batch.vectors) % (4 * len(handles)):
        raise WireError(f"{len(batch.vectors)} bytes are no {len(handles)} vectors")
    size = len(batch.vectors) // len(handles)
    for index, handle in enumerate(handles):
        vector = batch.vectors[index * size : (index + 1) * size]
        yield VectorItem(handle, epochs[index], vector, cached[index])


def finish_reason(choice: pb.FinishedChoice) -> FinishReason:
    """Return the reason why a choice ended. Raises WireError for an unknown reason."""
    if choice.reason not in _REASONS:
        raise WireError(f"a choice ended for no known reason ({choice.reason})")
    return _REASONS[choice.reason]


def cached_tiers(choice: pb.FinishedChoice | timeline_pb2.ChoiceTimeline) -> CachedTiers:
    """Return the cached tokens of a choice by tier. Raises WireError for a repeated tier."""
    tiers = {entry.tier: entry.num_tokens for entry in choice.cached_tokens}
    if len(tiers) < len(choice.cached_tokens):
        raise WireError("a tier of cached tokens is there twice", field="cached_tokens")
    return tiers


def token_chunks(batch: pb.TokenBatch) -> Iterator[TokenChunk]:
    """Yield the chunks of a step. Raises WireError when arrays disagree in length."""
    handles, counts = unpack_u32(batch.handles), unpack_u32(batch.counts)
    choices, epochs = unpack_u32(batch.choices), unpack_u32(batch.epochs)
    firsts = unpack_u32(batch.first_positions)
    cached = unpack_u32(batch.num_cached_tokens) or [0] * len(handles)
    require_one_length(
        handles=handles,
        choices=choices,
        epochs=epochs,
        first_positions=firsts,
        counts=counts,
        num_cached_tokens=cached,
    )
    token_ids = unpack_u32(batch.token_ids)
    if sum(counts) != len(token_ids):
        raise WireError(f"{sum(counts)} tokens are announced, {len(token_ids)} came")
    logprobs = _logprobs(batch, token_ids)
    begin = 0
    for handle, epoch, choice, first, count, num_cached in zip(
        handles, epochs, choices, firsts, counts, cached, strict=True
    ):
        end = begin + count
        yield handle, epoch, choice, first, token_ids[begin:end], logprobs[begin:end], num_cached
        begin = end


def prompt_pieces(batch: pb.PromptLogprobBatch) -> Iterator[PromptPiece]:
    """Yield the pieces of prompts. Raises WireError when arrays disagree in length or a piece
    begins at position 0, which nothing predicts."""
    handles, epochs = unpack_u32(batch.handles), unpack_u32(batch.epochs)
    firsts, counts = unpack_u32(batch.first_positions), unpack_u32(batch.counts)
    require_one_length(handles=handles, epochs=epochs, first_positions=firsts, counts=counts)
    values, ranks = unpack_f32(batch.logprobs), unpack_u32(batch.ranks)
    require_one_length(logprobs=values, ranks=ranks)
    if sum(counts) != len(values):
        raise WireError(f"{sum(counts)} positions are announced, {len(values)} came")
    if 0 in firsts:
        raise WireError("nothing predicts the first token of a prompt")
    tops = _alternatives(batch, len(values))
    scores = [Score(*item) for item in zip(values, ranks, tops, strict=True)]
    begin = 0
    for handle, epoch, first, count in zip(handles, epochs, firsts, counts, strict=True):
        yield PromptPiece(handle, epoch, first, tuple(scores[begin : begin + count]))
        begin += count


def _logprobs(batch: pb.TokenBatch, token_ids: Sequence[int]) -> list[TokenLogprob]:
    if not batch.logprobs:
        return []
    values = unpack_f32(batch.logprobs)
    # Older peers send no ranks; 0 means that a rank is not known.
    ranks = unpack_u32(batch.ranks) or [0] * len(values)
    require_one_length(token_ids=token_ids, logprobs=values, ranks=ranks)
    tops = _alternatives(batch, len(values))
    return [TokenLogprob(*item) for item in zip(token_ids, values, tops, ranks, strict=True)]


def _alternatives(
    batch: pb.TokenBatch | pb.PromptLogprobBatch, num_tokens: int
) -> list[tuple[tuple[int, float], ...]]:
    """Return the alternatives of each token. Raises WireError when arrays disagree in length."""
    num_top = unpack_u32(batch.num_top) or [0] * num_tokens
    if len(num_top) != num_tokens:
        raise WireError(f"{num_tokens} tokens came, alternatives of {len(num_top)}")
    top_ids, top_values = unpack_u32(batch.top_token_ids), unpack_f32(batch.top_logprobs)
    if not len(top_ids) == len(top_values) == sum(num_top):
        raise WireError("alternatives are announced that did not come")
    ends = np.cumsum(num_top, dtype=np.int64).tolist()
    return [
        tuple(zip(top_ids[end - n : end], top_values[end - n : end], strict=True))
        for n, end in zip(num_top, ends, strict=True)
    ]
