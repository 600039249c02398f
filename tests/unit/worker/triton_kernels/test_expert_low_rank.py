"""Adapters of experts on kernels against those in plain torch, and rows alone against rows in a
batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Final

import pytest
import torch
from torch import Tensor
from unit.worker.triton_kernels.conftest import TOLERANCES

from pagewire_shared.errors import StartupError
from pagewire_worker.adapters.content import AdapterPart
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.backend.adapters import NO_ADAPTER, AdapterLimits, AdapterRows
from pagewire_worker.cuda.expert_adapters import (
    ExpertAdapters,
    ExpertMember,
    ExpertStack,
    SlotMemory,
    StackedEmbedding,
)
from pagewire_worker.cuda.triton_adapters import MAX_PAIRS, TritonAdapterStore, TritonSum
from pagewire_worker.models.adapter_tensors import StepAdapters
from pagewire_worker.models.registry import read_plan
from support.poison.launches import reaching

EXPERTS: Final = Path(__file__).parents[3] / "support" / "adapters" / "experts" / "olmoe" / "model"
NUM_SLOTS, NUM_EXPERTS, CHOSEN, INPUTS = 3, 4, 2, 70
CPU: Final = torch.device("cpu")
RANKS: Final = {0: (1, 32), 2: (20, 7)}
"""Slot to the ranks of both parts; slot 1 is empty, and expert 3 has the first part alone."""

Parts = dict[tuple[int, int], tuple[AdapterPart | None, ...]]


def parts_of(sizes: tuple[int, ...], dtype: torch.dtype) -> Parts:
    """Return the parts by slot and expert."""
    found: Parts = {}
    for slot, ranks in RANKS.items():
        for expert in range(NUM_EXPERTS):
            made = [
                AdapterPart(
                    (torch.randn(rank, INPUTS) * 0.1).to(dtype),
                    torch.randn(size, rank).to(dtype),
                    0.5 + expert,
                )
                for size, rank in zip(sizes, ranks, strict=False)
            ]
            is_half = expert == 3 and len(made) > 1
            found[slot, expert] = (made[0], None) if is_half else tuple(made)
    return found


@dataclass(frozen=True)
class Filled:
    """A stack whose slots are filled."""

    stack: ExpertStack
    members: list[ExpertMember]
    memory: SlotMemory

    def fill(self, slot: int, found: Sequence[Sequence[AdapterPart | None]]) -> None:
        self.memory.write(slot, [self.stack], zip(self.members, found, strict=True))


def filled(parts: Parts, sizes: tuple[int, ...], dtype: torch.dtype) -> Filled:
    bounds = tuple(pairwise(accumulate(sizes, initial=0)))
    stack = ExpertStack.empty(
        bounds, num_experts=NUM_EXPERTS, num_slots=NUM_SLOTS, max_rank=32, device=CPU
    )
    members = [ExpertMember(stack, expert, bounds) for expert in range(NUM_EXPERTS)]
    made = Filled(stack, members, SlotMemory(CPU, dtype))
    for slot in RANKS:
        made.fill(slot, [parts[slot, expert] for expert in range(NUM_EXPERTS)])
    return made


def added(made: Filled, y: Tensor, x: Tensor, slots: Tensor, chosen: Tensor) -> Tensor:
    step = StepAdapters(TritonSum(), NUM_SLOTS)
    step.routed.step = AdapterRows(slots, ())
    rows = ExpertAdapters(made.stack, made.stack, step).sort(chosen)
    assert rows is not None
    found = y.clone()
    with reaching(chain(*made.memory.held.values())):
        made.stack.add(found, x, rows, CHOSEN)
    return found


def expected(parts: Parts, y: Tensor, x: Tensor, slots: Tensor, chosen: Tensor) -> Tensor:
    found = y.clone()
    for choice, expert in enumerate(chosen.flatten().tolist()):
        token, first = choice // CHOSEN, 0
        for part in parts.get((int(slots[token]), expert), ()):
            if part is not None:
                end = first + len(part.up)
                low = x[token].float() @ part.down.float().T * part.scaling
                own = found[choice, first:end]
                own.copy_((own.float() + low @ part.up.float().T).to(y.dtype))
                first = end
    return found


@pytest.mark.parametrize(
    ("sizes", "dtype"), [((48, 48), torch.float32), ((80,), torch.float32), ((80,), torch.bfloat16)]
)
def test_sums_are_those_of_torch_in_any_batch(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    parts = parts_of(sizes, dtype)
    stack = filled(parts, sizes, dtype)
    slots = torch.tensor([2, NO_ADAPTER, 0, 1, *[2] * 19])
    first = torch.randint(0, NUM_EXPERTS, (len(slots),))
    chosen = torch.stack([first, (first + 1) % NUM_EXPERTS], dim=1).to(torch.int32)
    x = torch.randn(len(slots), INPUTS).to(dtype)
    y = torch.randn(len(slots) * CHOSEN, sum(sizes)).to(dtype)
    found = added(stack, y, x, slots, chosen)
    torch.testing.assert_close(found, expected(parts, y, x, slots, chosen), **TOLERANCES[dtype])
    for token in (1, 3):
        own = slice(token * CHOSEN, (token + 1) * CHOSEN)
        assert torch.equal(found[own], y[own]), "a token without adapters of experts"
    for token in (0, 2, 20):
        rows, own = slice(token, token + 1), slice(token * CHOSEN, (token + 1) * CHOSEN)
        alone = added(stack, y[own], x[rows], slots[rows], chosen[rows])
        assert torch.equal(alone, found[own])


def test_more_pairs_than_are_sorted_end_the_start() -> None:
    plan = read_plan(EXPERTS)
    limits = AdapterLimits(MAX_PAIRS // 6 + 1, 8, 0)
    with pytest.raises(StartupError, match="--max-loras: 2731 adapters of 6 experts") as caught:
        TritonAdapterStore(
            targets=AdapterTargets(plan), limits=limits, device=CPU, dtype=torch.float32
        )
    assert caught.value.field == "max_loras"


def test_a_slot_gives_its_memory_back() -> None:
    made = filled(parts_of((8,), torch.float32), (8,), torch.float32)
    ranks = made.stack.table.ranks
    assert ranks.tolist() == [1] * NUM_EXPERTS + [0] * NUM_EXPERTS + [20] * NUM_EXPERTS
    assert {*made.memory.held} == {*RANKS}, "one piece of memory for each"
    made.fill(2, [(None,)] * NUM_EXPERTS)
    assert {*made.memory.held} == {0}
    assert ranks.tolist() == [1] * NUM_EXPERTS + [0] * (2 * NUM_EXPERTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_an_embedding(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    num_tokens, hidden, rank = 90, 48, 20
    down, up = torch.randn(rank, num_tokens).to(dtype), torch.randn(hidden, rank).to(dtype)
    part = AdapterPart(down, up, 0.3)
    stack = ExpertStack.empty(
        ((0, hidden),), num_experts=1, num_slots=2, max_rank=32, device=CPU, has_rows=True
    )
    memory = SlotMemory(CPU, dtype)
    memory.write(1, [stack], [(ExpertMember(stack, 0, ((0, hidden),)), [part])])
    token_ids, slots = torch.arange(0, 84, 4), torch.tensor([1, NO_ADAPTER, 0, *[1] * 18])
    y = torch.randn(len(slots), hidden).to(dtype)

    def of(rows: slice) -> Tensor:
        step = StepAdapters(TritonSum(), 2)
        step.begin(AdapterRows(slots[rows], ()))
        with reaching(memory.held[1]):
            return StackedEmbedding(lambda _: y[rows].clone(), stack, step)(token_ids[rows])

    found = of(slice(None))
    low = part.down[:, token_ids].float().T * part.scaling
    own = (y.float() + low @ part.up.float().T).to(dtype)
    torch.testing.assert_close(
        found, torch.where((slots == 1)[:, None], own, y), **TOLERANCES[dtype]
    )
    for token in (0, 1, 2, 20):
        assert torch.equal(of(slice(token, token + 1))[0], found[token])
