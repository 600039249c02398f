"""Settings and cache of a worker that serves an encoder: its KV blocks are bookkeeping only."""

from dataclasses import replace

from pagewire_worker.config import WorkerConfig
from pagewire_worker.encoders.backend import BOOKKEEPING
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.loading.replica_shape import ReplicaShape


def encoder_cache(shape: ReplicaShape, block_size: int) -> KvCache | None:
    """Return a cache in which no prompt ever waits for a block, a few bytes for each; None for a
    decoder.
    """
    if not shape.model.is_encoder:
        return None
    blocks_per_seq = -(-shape.max_model_len // block_size)
    return KvCache(
        shape=BOOKKEEPING,
        # The scheduler keeps one block in reserve for each running sequence.
        num_blocks=shape.max_num_seqs * (blocks_per_seq + 1),
        block_size=block_size,
        device=shape.device,
        dtype=shape.dtype,
        has_whole_blocks=False,
    )


def without_blocks(config: WorkerConfig) -> WorkerConfig:
    """Return the settings of a worker whose blocks have no content for stores or other workers."""
    return replace(config, kv_offload="off", kv_transport="off")
