"""Steps that mix many adapters and the model alone: the same bits as each request alone, with
chunks, shared prefixes, preemptions and deaths."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.adapters.model_adapters import make_adapter
from support.cells.exact_cells import SOLO, ExactCell
from support.kernels.fused_kernels import needs_kernels
from support.oracles.exact_requests import (
    Case,
    check_batches,
    draw_requests,
    make_exact_checkpoint,
)

pytestmark = needs_kernels

NUM_ADAPTERS = 6
RANKS = (1, 3, 8, 16, 17, 40)
SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "cpu_backend": "fused",
    "enable_lora": True,
    "max_loras": NUM_ADAPTERS,
    "max_lora_rank": 40,
}


def make_case(place: Path, name: str, **settings: Any) -> Case:
    """Return a cell with adapters of different ranks and targets, and each request alone."""
    folder = make_exact_checkpoint(place, name)
    cell = ExactCell(folder, num_threads=1, **SETTINGS, **settings)
    targets = (None, ("q_proj", "v_proj"), ("down_proj",), None, ("o_proj", "up_proj"), None)
    for slot, (rank, only) in enumerate(zip(RANKS, targets, strict=True)):
        # Some have no experts that a router chooses, and some change embedding and logits.
        made = make_adapter(
            *(place / str(slot), folder),
            rank=rank,
            seed=slot,
            only=only,
            routed=slot not in (0, 5),
            outer=slot in (3, 5),
        )
        made.fill(cell.replica.model_runner, slot)
    slots = (None, *range(NUM_ADAPTERS))
    requests = [
        replace(request, adapter_slot=slots[number % len(slots)])
        for number, request in enumerate(draw_requests(len(name)))
    ]
    return cell, requests, [cell.run([request], SOLO)[0] for request in requests]


@pytest.mark.parametrize(
    ("name", "seed", "settings"),
    [
        ("llama", 1, {}),
        pytest.param("qwen2", 1, {"quantization": "int8"}, marks=pytest.mark.long),
        ("qwen3-moe", 4, {"quantization": "int8"}),
    ],
)
def test_batches_equal_requests_alone(
    name: str, seed: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    case = make_case(tmp_path, name, **settings)
    check_batches(case, 12, seed)
    cell = case[0]
    assert cell.num_deaths > 0
    assert cell.num_preemptions > 0
    assert cell.num_cached_tokens > 0
