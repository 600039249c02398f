"""What a worker says about itself: plain data, gathered once after loading."""

from dataclasses import dataclass

from pagewire_worker.kv_cache import CacheGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """Identity, fingerprints, layout and capacity of one loaded replica.

    `embedding_size` is the length of its vectors, 0 when it cannot pool.
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
    max_model_len: int
    steps_in_flight: int
    vocab_size: int
    embedding_size: int = 0
    kv_endpoints: tuple[str, ...] = ()
