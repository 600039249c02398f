"""Converts the layout of KV blocks to its message."""

from pagewire_protos.common.v1 import layout_pb2
from pagewire_worker.checkpoint.fingerprint import VERSION as FINGERPRINT_VERSION
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload.connector import BlockLayout


def layout_to_message(layout: BlockLayout) -> layout_pb2.KvLayout:
    """Return the message of `layout`; stores and workers compare it."""
    groups = [
        layout_pb2.CacheGroup(
            kind=_kind(group),
            num_layers=group.num_layers,
            block_size=group.block_size,
            bytes_per_block=group.bytes_per_block + layout.num_seal_bytes,
            shard=0,
            num_shards=1,
            dtype=group.dtype,
            window=group.window,
        )
        for group in layout.groups
    ]
    return layout_pb2.KvLayout(
        model_fingerprint=layout.model_fingerprint,
        numerics_fingerprint=layout.numerics_fingerprint,
        groups=groups,
        fingerprint_version=FINGERPRINT_VERSION,
    )


def _kind(group: CacheGroup) -> layout_pb2.CacheKind:
    if group.is_latent:
        assert group.window is None, "a group of latents keeps all positions"
        return layout_pb2.CACHE_KIND_LATENT
    return layout_pb2.CACHE_KIND_FULL if group.window is None else layout_pb2.CACHE_KIND_SLIDING
