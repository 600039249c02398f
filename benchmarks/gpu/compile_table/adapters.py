"""What the worker launches for adapters, with tensors on the CPU that nothing is computed of."""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np
import torch

from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.cuda.expert_adapters import ExpertStack
from pagewire_worker.cuda.triton_adapters import TritonSum
from pagewire_worker.models.adapter_tensors import SlotTensors
from pagewire_worker.triton_kernels.expert_low_rank import add_embedding_adapters
from pagewire_worker.triton_kernels.low_rank import TILE_ROWS
from pagewire_worker.triton_kernels.route_tokens import sort_rows

NUM_SLOTS, RANK = 8, 16


def _add_adapters(dtype: torch.dtype) -> None:
    """Add those of queries, keys and values of Llama-3.1-8B."""
    inputs, sizes = 4096, (4096, 1024, 1024)
    ends = np.cumsum((0, *sizes)).tolist()
    tensors = SlotTensors(
        bounds=tuple(pairwise(ends)),
        down=torch.empty((NUM_SLOTS, len(sizes) * RANK, inputs), dtype=dtype),
        up=torch.empty((NUM_SLOTS, sum(sizes), RANK), dtype=dtype),
        scalings=torch.empty((NUM_SLOTS, len(sizes))),
        ranks=torch.empty(NUM_SLOTS, dtype=torch.int32),
    )
    sums, slots = TritonSum(), torch.zeros(3, dtype=torch.int64)
    rows = sums.prepare(AdapterRows(slots, (0,)), NUM_SLOTS)
    x, y = torch.empty((3, inputs), dtype=dtype), torch.empty((3, sum(sizes)), dtype=dtype)
    sums.add(y, x, rows, tensors)


def _add_expert_adapters(dtype: torch.dtype) -> None:
    """Add those of the experts of Qwen3-30B-A3B."""
    hidden, size, num_experts, num_chosen = 2048, 768, 128, 8
    stack = ExpertStack.empty(
        ((0, size), (size, 2 * size)),
        num_experts=num_experts,
        num_slots=NUM_SLOTS,
        max_rank=RANK,
        device=torch.device("cpu"),
    )
    chosen = torch.zeros((3, num_chosen), dtype=torch.int32)
    rows = sort_rows(chosen, NUM_SLOTS * num_experts, TILE_ROWS)
    y = torch.empty((3 * num_chosen, 2 * size), dtype=dtype)
    stack.add(y, torch.empty((3, hidden), dtype=dtype), rows, num_chosen)


def _add_to_embedding(dtype: torch.dtype) -> None:
    """Add those of the embedding of Llama-3.1-8B."""
    hidden = 4096
    stack = ExpertStack.empty(
        ((0, hidden),),
        num_experts=1,
        num_slots=NUM_SLOTS,
        max_rank=RANK,
        device=torch.device("cpu"),
        has_rows=True,
    )
    token_ids = torch.zeros(3, dtype=torch.int64)
    rows = TritonSum().prepare(AdapterRows(token_ids, (0,)), NUM_SLOTS)
    add_embedding_adapters(torch.empty((3, hidden), dtype=dtype), token_ids, rows, stack.table)


ADAPTERS: Final[dict[str, Callable[[torch.dtype], None]]] = {
    "4096->6144 rank 16": _add_adapters,
    "128 experts 2048->1536 rank 16": _add_expert_adapters,
    "embedding 4096 rank 16": _add_to_embedding,
}
"""Words that tell launches from others -> what launches them for a type."""
