"""Peers as the step loop sees them, and the checks of their hellos. It does no I/O: `links` has the
streams."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pagewire_scheduler.core.cell_load import CellLoad
from pagewire_scheduler.core.data.events import Event
from pagewire_scheduler.core.data.worker_info import ModelInfo, Role, WorkerInfo
from pagewire_scheduler.core.state.adapters import SlotLoad
from pagewire_scheduler.core.state.frontend import Held
from pagewire_scheduler.peers.liveness import ProgressWatch
from pagewire_shared.errors import PagewireError, PeerRefusedError
from pagewire_shared.identity.ids import ID_BYTES, RequestId
from pagewire_shared.kv.load import LoadOrder
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_shared.sleep.state import MemoryTag, SleepOrder
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.weights.version import UpdateOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendInfo:
    """A frontend's hello as plain data; `tokenizers` maps a served name to a fingerprint."""

    frontend_id: bytes
    cell: str
    tokenizers: Mapping[str, bytes]
    held_generation: int | None
    held: tuple[Held, ...]


class WorkerPeer(Protocol):
    """The loop's view of a worker's stream."""

    watch: ProgressWatch

    @property
    def info(self) -> WorkerInfo:
        """The worker's hello."""
        ...

    @property
    def is_drained(self) -> bool:
        """Whether it was sent the message that it may leave."""
        ...

    def send_plan(self, plan: StepPlan) -> None:
        """Put a plan into the send queue."""

    def send_grammar(self, grammar_id: bytes, params: StructuredOutputsParams) -> None:
        """Put a request to compile a grammar into the send queue."""

    def send_adapter(self, order: SlotLoad) -> None:
        """Put an order to load an adapter into the send queue."""

    def send_load(self, order: LoadOrder) -> None:
        """Put an order to load blocks into the send queue."""

    def send_cancel_load(self, load_id: int) -> None:
        """Put the cancellation of a load into the send queue."""

    def send_roles(self, roles: Iterable[Role]) -> None:
        """Put the new roles of the worker into the send queue."""

    def send_drained(self) -> None:
        """Put the message that the worker may leave into the send queue."""

    def send_sleep(self, order: SleepOrder) -> None:
        """Put the order to sleep into the send queue, once."""

    def send_wake(self, tags: Iterable[MemoryTag]) -> None:
        """Put an order to wake into the send queue."""

    def send_update(self, order: UpdateOrder) -> None:
        """Put the order to load other weights into the send queue, once."""

    def ask_weights(self, query_id: int, path: str) -> "asyncio.Future[bytes | PagewireError]":
        """Ask for the fingerprint of weights, or why they do not do."""
        ...

    def close(self, error: PagewireError | None) -> None:
        """End the stream and detach."""


class FrontendPeer(Protocol):
    """The loop's view of a frontend's stream."""

    @property
    def info(self) -> FrontendInfo:
        """The frontend's hello."""
        ...

    def send_events(self, events: Sequence[Event]) -> None:
        """Put tokens, ends and refusals into the send queue."""

    def send_models(self, models: Sequence[tuple[ModelInfo, int]]) -> None:
        """Put the models served into the send queue."""

    def send_heartbeat(self, counter: int) -> None:
        """Put a heartbeat into the send queue."""

    def send_load(self, load: CellLoad) -> None:
        """Put the load of the cell into the send queue."""

    def send_failing(self, request_ids: Sequence[RequestId]) -> None:
        """Send, as the last message, the requests that the core worked on when it failed."""

    def close(self, error: PagewireError | None) -> None:
        """End the stream and detach."""


def check_frontend(info: FrontendInfo, models: Iterable[ModelInfo]) -> None:
    """Raise PeerRefusedError when a frontend's tokenizer differs from that of the workers."""
    if len(info.frontend_id) != ID_BYTES:
        raise PeerRefusedError(f"frontend_id needs {ID_BYTES} bytes", field="frontend_id")
    for model in models:
        _check_tokenizer(model.name, info.tokenizers, model.tokenizer_fingerprint)


def check_worker(
    info: WorkerInfo, models: Iterable[ModelInfo], frontends: Iterable[Mapping[str, bytes]]
) -> None:
    """Raise PeerRefusedError when a worker does not match others of its model or the frontends."""
    _check_capacity(info)
    for model in models:
        if model.name == info.model.name:
            _check_model(info.model, model)
    for tokenizers in frontends:
        _check_tokenizer(info.model.name, tokenizers, info.model.tokenizer_fingerprint)


def models_beside(info: WorkerInfo, others: Iterable[WorkerInfo]) -> set[ModelInfo]:
    """Return the models of attached workers that a worker has to match.

    Weights of different updates differ: the older ones are exchanged once both are attached.
    """
    models = set()
    for other in others:
        model = other.model
        if _is_of_other_update(info, other):
            model = replace(model, model_fingerprint=info.model.model_fingerprint)
        models.add(model)
    return models


def _is_of_other_update(info: WorkerInfo, other: WorkerInfo) -> bool:
    # A worker that takes no other weights has to have those of all.
    if info.source is None or other.source is None:
        return False
    return info.source.serial != other.source.serial


def _check_capacity(info: WorkerInfo) -> None:
    if len(info.worker_id) != ID_BYTES:
        raise PeerRefusedError(f"worker_id needs {ID_BYTES} bytes", field="worker_id")
    if not info.model.name:
        raise PeerRefusedError("a worker must name its model", field="model")
    for name, value in (
        ("num_blocks", info.num_blocks),
        ("max_num_seqs", info.max_num_seqs),
        ("max_num_batched_tokens", info.max_num_batched_tokens),
        ("steps_in_flight", info.steps_in_flight),
        ("block_size", info.model.block_size),
        ("vocab_size", info.model.vocab_size),
    ):
        if value < 1:
            raise PeerRefusedError(f"{name} must be at least 1", field=name)
    if info.shared_step_tokens > info.max_num_batched_tokens:
        raise PeerRefusedError(
            "shared_step_tokens must not exceed max_num_batched_tokens", field="shared_step_tokens"
        )
    if info.model.is_encoder and info.model.max_model_len > info.max_num_batched_tokens:
        raise PeerRefusedError(
            "max_num_batched_tokens of an encoder must be at least max_model_len",
            field="max_num_batched_tokens",
        )
    if info.model.max_model_len < 2:
        raise PeerRefusedError("max_model_len must be at least 2", field="max_model_len")


def _check_model(model: ModelInfo, known: ModelInfo) -> None:
    names = ["tokenizer_fingerprint", "vocab_size", "block_size", "max_model_len"]
    names += ["embedding_size", "num_labels", "is_encoder"]
    # Workers of two versions serve side by side while they are replaced; they share no blocks.
    if model.fingerprint_version == known.fingerprint_version:
        names.insert(0, "model_fingerprint")
    for name in names:
        mine, theirs = getattr(known, name), getattr(model, name)
        if mine != theirs:
            raise PeerRefusedError(
                f"{name} of model {model.name} is {_shown(theirs)}; "
                f"attached workers have {_shown(mine)}",
                field=name,
            )


def _check_tokenizer(name: str, tokenizers: Mapping[str, bytes], fingerprint: bytes) -> None:
    known = tokenizers.get(name)
    if known is not None and known != fingerprint:
        raise PeerRefusedError(
            f"the tokenizer of model {name} is {_shown(known)} at the frontend and "
            f"{_shown(fingerprint)} at the worker",
            field="tokenizer_fingerprint",
        )


def _shown(value: bytes | int) -> str:
    return value.hex()[:16] if isinstance(value, bytes) else str(value)
