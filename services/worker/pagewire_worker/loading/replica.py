"""Description of a loaded replica, as the worker reports it to its scheduler."""

from dataclasses import dataclass

from pagewire_shared.adapters.model_shapes import ModelShapes
from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload.connector import BlockLayout
from pagewire_worker.plan.roles import ALL_ROLES, WorkerRole


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """Identity, fingerprints, layout and capacity of one loaded replica.

    `embedding_size` is the length of its vectors, 0 if it cannot pool. `num_labels` is the number
    of its class scores. An encoder computes prompts whole and generates nothing. `loads_blocks` is
    set if it loads blocks from KV stores, and `places_copies` if it places them on several ones.
    `outside_store` names a store whose content the scheduler does not know.
    `shared_step_tokens` limits steps that several sequences
    share.
    `kv_transports` are the ways to send blocks to other workers, `pull_transports` the ways to
    receive theirs. `host_id` is the boot id of its host, "" if unknown. `max_adapters` are the
    adapter slots, 0 if it takes no adapters, and `max_adapter_rank` is their largest rank.
    `adapter_shapes` is what an adapter has to fit.
    `max_drafts` is the number of drafts per sequence and step that it verifies, 0 if it does not
    speculate. `is_exact` is set if a sequence gets the same bits however it is batched.
    """

    worker_id: bytes
    served_model_name: str
    tokenizer_fingerprint: bytes
    model_fingerprint: bytes
    numerics_fingerprint: bytes
    cache_groups: tuple[CacheGroup, ...]
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    shared_step_tokens: int
    max_model_len: int
    steps_in_flight: int
    vocab_size: int
    embedding_size: int = 0
    num_labels: int = 0
    is_encoder: bool = False
    kv_endpoints: tuple[str, ...] = ()
    loads_blocks: bool = False
    outside_store: str = ""
    places_copies: bool = False
    roles: tuple[WorkerRole, ...] = ALL_ROLES
    kv_transports: tuple[KvTransport, ...] = ()
    pull_transports: tuple[KvTransport, ...] = ()
    host_id: str = ""
    max_adapters: int = 0
    max_adapter_rank: int = 0
    adapter_shapes: ModelShapes | None = None
    max_drafts: int = 0
    is_exact: bool = False

    @property
    def layout(self) -> BlockLayout:
        """Layout of its blocks; blocks of workers with the same layout are interchangeable."""
        return BlockLayout(self.model_fingerprint, self.numerics_fingerprint, self.cache_groups)

    @property
    def num_cache_bytes(self) -> int:
        """Bytes of the blocks."""
        return self.num_blocks * self.cache_groups[0].bytes_per_block
