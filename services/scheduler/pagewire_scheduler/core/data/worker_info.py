"""A worker's description of itself in its hello: model, capacity, roles and transports."""

import enum
from dataclasses import dataclass
from typing import Final

from pagewire_scheduler.core.blocks.cache_groups import ONE_GROUP, CacheGroups
from pagewire_shared.errors import PagewireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.transport import KvTransport
from pagewire_shared.sleep.state import WorkerSleep
from pagewire_shared.weights.version import WeightsSource, WeightsVersion


class Role(enum.Enum):
    """A role of a worker, which may have both; the values appear in flags and reports."""

    PREFILL = "prefill"  # computes prompts, also those of requests that go on elsewhere
    DECODE = "decode"  # owns requests and generates their tokens


ALL_ROLES: Final = frozenset(Role)


@dataclass(frozen=True, slots=True)
class BlockNaming:
    """The inputs of block names besides model, cache salt and tokens."""

    layout_fingerprint: bytes
    dtype: str
    block_size: int
    is_by_tenant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Facts on which all workers of one model name must agree.

    Fingerprints of different `fingerprint_version` cannot be compared. `embedding_size` is the
    length of its vectors; 0 when it cannot pool. `num_labels` is the number of its class scores. An
    encoder computes each prompt whole, in one step, without a cache. A hello has none of the last
    five, which are sent to frontends: `namings`, that of most workers first, the least
    `max_adapter_rank` and `max_adapters` of the workers with adapters, their different
    `adapter_shapes`, as messages, and whether all workers compute a request to the same bits.
    """

    name: str
    model_fingerprint: bytes
    tokenizer_fingerprint: bytes
    max_model_len: int
    vocab_size: int
    block_size: int
    embedding_size: int = 0
    num_labels: int = 0
    is_encoder: bool = False
    fingerprint_version: int = 0
    namings: tuple[BlockNaming, ...] = ()
    max_adapter_rank: int = 0
    max_adapters: int = 0
    adapter_shapes: tuple[bytes, ...] = ()
    is_exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker's hello as plain data.

    Attributes:
        layout_fingerprint: Hash of its cache groups and numerics; part of every block's name.
        shared_step_tokens: Most tokens of a step that several sequences share; 0 for
            `max_num_batched_tokens`.
        groups: Its cache groups.
        held: (name, block) of blocks that are VALID on the worker from before.
        bytes_per_block: Bytes of a block in all layers of a group, alike for all groups.
        loads_blocks: Whether it can load blocks from KV stores.
        outside_store: The only store that it loads from, whose content is not known here; empty
            when it loads from KV stores that are watched.
        places_copies: Whether it places blocks by their stripes, and loads a prefix from several
            stores.
        roles: Its roles when it attaches.
        kv_endpoint: Address to pull its blocks from; empty when they cannot be pulled.
        kv_transports: Transports by which others pull its blocks.
        pull_transports: Transports by which it pulls blocks of other workers.
        host_id: Boot id of its host; empty when unknown.
        takes_prefixes: Whether a new sequence may refer to the prompt of another slot.
        max_adapters: Its adapter slots; 0 when it takes no adapters.
        max_adapter_rank: Largest rank of an adapter.
        adapter_shapes: What an adapter has to fit, as a message; empty when it is not known.
        warm_adapters: Adapters whose content is in its memory.
        max_drafts: Drafts that it verifies per sequence and step; 0 when it does not speculate.
        is_exact: Whether a sequence gets the same bits however it is batched.
        can_sleep: Whether it takes orders to sleep and to wake.
        sleep_after: Seconds without work after which it wants to sleep; 0 for never.
        sleep: Its sleep; None when it attaches awake.
        source: Where its weights are from; None when it takes no others.
        failed_update: Serial and error of an update that failed; None for none.
    """

    worker_id: bytes
    incarnation: int
    model: ModelInfo
    layout_fingerprint: bytes
    dtype: str
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    steps_in_flight: int
    shared_step_tokens: int = 0
    groups: CacheGroups = ONE_GROUP
    held: tuple[tuple[BlockName, int], ...] = ()
    bytes_per_block: int = 0
    loads_blocks: bool = False
    outside_store: str = ""
    places_copies: bool = False
    roles: frozenset[Role] = ALL_ROLES
    kv_endpoint: str = ""
    kv_transports: tuple[KvTransport, ...] = ()
    pull_transports: tuple[KvTransport, ...] = ()
    host_id: str = ""
    takes_prefixes: bool = False
    max_adapters: int = 0
    max_adapter_rank: int = 0
    adapter_shapes: bytes = b""
    warm_adapters: tuple[bytes, ...] = ()
    max_drafts: int = 0
    is_exact: bool = False
    can_sleep: bool = False
    sleep_after: float = 0.0
    sleep: WorkerSleep | None = None
    source: WeightsSource | None = None
    failed_update: tuple[int, PagewireError] | None = None

    @property
    def weights(self) -> WeightsVersion:
        """The weights that it computes with."""
        label = "" if self.source is None else self.source.label
        return WeightsVersion(self.model.model_fingerprint, self.model.fingerprint_version, label)

    def num_bytes(self, start: int, end: int) -> int:
        """Return the bytes that a prefix of `end` blocks needs beyond its first `start`."""
        return self.bytes_per_block * self.groups.num_needed(start, end, self.model.block_size)
