"""Computes digests of block contents, to compare them with another worker's."""

import asyncio
import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Final

import torch

from pagewire_worker.runner.model_runner import ModelRunner
from pagewire_worker.runner.model_thread import ModelThread

COPIED_BYTES: Final = 4 * 1024 * 1024
"""Bytes copied in one job of the model thread, in about a millisecond."""
DIGEST_BYTES: Final = 32


async def digests_of(
    model_runner: ModelRunner, thread: ModelThread, names: Sequence[bytes], bytes_per_block: int
) -> list[bytes]:
    """Return the SHA-256 of the payload of each block, zeros for a block that is not here.

    Payloads are those of `offload.connector`. They are copied in the model thread and hashed in
    another thread.
    """
    num_rows = max(1, COPIED_BYTES // bytes_per_block)
    staging = torch.empty((num_rows, bytes_per_block), dtype=torch.uint8)
    digests: list[bytes] = []
    for begin in range(0, len(names), num_rows):
        some = names[begin : begin + num_rows]
        found = await thread.submit(partial(model_runner.blocks.copy_out, some, staging))
        rows = await asyncio.to_thread(_digests, staging, len(found))
        by_index = dict(zip(found, rows, strict=True))
        digests += [by_index.get(index, bytes(DIGEST_BYTES)) for index in range(len(some))]
    return digests


def _digests(staging: torch.Tensor, num_rows: int) -> list[bytes]:
    return [hashlib.sha256(row).digest() for row in staging[:num_rows].numpy()]
