"""Chooses the experts of tokens, and sorts the rows of a step by expert.

Both run on the device, so that a graph can hold them: no number of rows comes back to the host.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.families.plan import RouterSpec

NO_EXPERT = -1
_COUNTED = 1024
"""Choices that a program counts at a time."""


@dataclass(frozen=True, slots=True)
class SortedRows:
    """The choices of a step, sorted by expert; those of an expert fill whole blocks.

    Choice i of token t has the number t * chosen + i.

    Attributes:
        choices: Numbers of choices, int32 [blocks * block_rows], NO_EXPERT between experts.
        experts: Expert of each block, int32 [blocks]; NO_EXPERT for blocks without rows.
        num_choices: Of all tokens.
    """

    choices: Tensor
    experts: Tensor
    num_choices: int


def route_tokens(
    spec: RouterSpec, values: Tensor, choice_bias: Tensor | None, *, has_gate: bool
) -> tuple[Tensor, Tensor]:
    """Choose the experts of each token, as models/experts.py does.

    Args:
        values: Of the router, float32 [tokens, experts], and one more column with `has_gate`.
        choice_bias: float32 [experts], or None.

    Returns:
        Weights, float32 [tokens, chosen + 1], the last one of the shared expert; and the chosen,
        int32 [tokens, chosen].
    """
    num_tokens, chosen = len(values), spec.num_chosen
    weights = torch.empty((num_tokens, chosen + 1), dtype=torch.float32, device=values.device)
    experts = torch.empty((num_tokens, chosen), dtype=torch.int32, device=values.device)
    _route[(num_tokens,)](
        values,
        choice_bias,
        weights,
        experts,
        values.stride(0),
        spec.factor,
        COUNT=spec.num_experts,
        BLOCK=triton.next_power_of_2(spec.num_experts),
        CHOSEN=chosen,
        CHOSEN_BLOCK=triton.next_power_of_2(chosen),
        GROUPS=spec.num_groups,
        GROUP_BLOCK=triton.next_power_of_2(spec.num_groups),
        CHOSEN_GROUPS=spec.num_chosen_groups,
        GROUP_BEST=spec.group_best,
        IS_SIGMOID=spec.score == "sigmoid",
        IS_NORMALISED=spec.is_normalised,
        HAS_GATE=has_gate,
    )
    return weights, experts


@triton.jit
def _route(
    values,
    choice_bias,
    weights,
    chosen,
    values_stride,
    factor,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
    CHOSEN: tl.constexpr,
    CHOSEN_BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    CHOSEN_GROUPS: tl.constexpr,
    GROUP_BEST: tl.constexpr,
    IS_SIGMOID: tl.constexpr,
    IS_NORMALISED: tl.constexpr,
    HAS_GATE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    experts = tl.arange(0, BLOCK)
    is_expert = experts < COUNT
    row = values + token * values_stride
    found = tl.load(row + experts, mask=is_expert, other=float("-inf"))
    scores = _scores(found, IS_SIGMOID)
    choices = scores
    if choice_bias is not None:
        choices += tl.load(choice_bias + experts, mask=is_expert, other=0.0)
    choices = _comparable(choices, is_expert)
    if CHOSEN_GROUPS < GROUPS:
        choices = _of_best_groups(
            choices, experts, COUNT, GROUPS, GROUP_BLOCK, CHOSEN_GROUPS, GROUP_BEST
        )
    places = tl.arange(0, CHOSEN_BLOCK)
    taken = tl.zeros([CHOSEN_BLOCK], tl.float32)
    for place in tl.static_range(CHOSEN):
        best = _first_best(choices, experts, BLOCK)
        taken = tl.where(
            places == place, tl.sum(tl.where(experts == best, scores, 0.0), axis=0), taken
        )
        choices = tl.where(experts == best, float("-inf"), choices)
        tl.store(chosen + token * CHOSEN + place, best)
    if IS_NORMALISED:
        taken = taken / (tl.sum(taken, axis=0) + 1e-20)
    target = weights + token * (CHOSEN + 1)
    tl.store(target + places, taken * factor, mask=places < CHOSEN)
    gate = 1.0
    if HAS_GATE:
        gate = 1.0 / (1.0 + tl.exp(-tl.load(row + COUNT)))
    tl.store(target + CHOSEN, gate)


@triton.jit
def _scores(values, IS_SIGMOID: tl.constexpr):
    if IS_SIGMOID:
        return 1.0 / (1.0 + tl.exp(-values))
    powers = tl.exp(values - tl.max(values, axis=0))
    return powers / tl.sum(powers, axis=0)


@triton.jit
def _comparable(choices, is_expert):
    """Return the choices; infinity for NaN, which a maximum may pass over."""
    choices = tl.where(choices == choices, choices, float("inf"))
    return tl.where(is_expert, choices, float("-inf"))


@triton.jit
def _first_best(choices, places, BLOCK: tl.constexpr):
    """Return the first place of the greatest choice; no choice is NaN."""
    best = tl.max(choices, axis=0)
    return tl.min(tl.where(choices == best, places, BLOCK), axis=0)


@triton.jit
def _of_best_groups(
    choices,
    experts,
    COUNT: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    CHOSEN_GROUPS: tl.constexpr,
    GROUP_BEST: tl.constexpr,
):
    """Return the choices, and -inf for experts of groups that are not chosen."""
    size: tl.constexpr = COUNT // GROUPS
    groups = tl.arange(0, GROUP_BLOCK)
    is_in = (experts[None, :] // size == groups[:, None]) & (experts[None, :] < COUNT)
    left = tl.where(is_in, choices[None, :], float("-inf"))
    sums = tl.zeros([GROUP_BLOCK], tl.float32)
    for _ in tl.static_range(GROUP_BEST):
        best = tl.max(left, axis=1)
        sums += best
        where = tl.where(left == best[:, None], experts[None, :], left.shape[1])
        left = tl.where(experts[None, :] == tl.min(where, axis=1)[:, None], float("-inf"), left)
    sums = tl.where(groups < GROUPS, sums, float("-inf"))
    is_kept = tl.zeros([GROUP_BLOCK], tl.int32)
    for _ in tl.static_range(CHOSEN_GROUPS):
        best = _first_best(sums, groups, GROUP_BLOCK)
        is_kept = tl.where(groups == best, 1, is_kept)
        sums = tl.where(groups == best, float("-inf"), sums)
    is_open = tl.max(tl.where(is_in, is_kept[:, None], 0), axis=0)
    return tl.where(is_open > 0, choices, float("-inf"))


def sort_rows(chosen: Tensor, num_experts: int, block_rows: int) -> SortedRows:
    """Sort choices by expert; those of one expert ascend.

    Args:
        chosen: int32 [tokens, chosen], contiguous.
        block_rows: Rows of a block.
    """
    num_choices = chosen.numel()
    # The most blocks that any choice of experts takes: their number is not known on the host.
    num_blocks = num_choices // block_rows + min(num_choices, num_experts)
    device = chosen.device
    counts = torch.empty(num_experts, dtype=torch.int32, device=device)
    choices = torch.empty(num_blocks * block_rows, dtype=torch.int32, device=device)
    experts = torch.empty(num_blocks, dtype=torch.int32, device=device)
    _count_choices[(num_experts,)](chosen, counts, num_choices, BLOCK=_COUNTED)
    _place_choices[(num_experts + 1,)](
        chosen,
        counts,
        choices,
        experts,
        num_choices,
        num_experts,
        num_blocks,
        BLOCK=_COUNTED,
        EXPERT_BLOCK=triton.next_power_of_2(num_experts),
        ROWS=block_rows,
    )
    return SortedRows(choices, experts, num_choices)


@triton.jit(do_not_specialize=["num_choices"])
def _count_choices(chosen, counts, num_choices, BLOCK: tl.constexpr):
    expert = tl.program_id(0)
    within = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, num_choices, BLOCK):
        found = tl.load(chosen + begin + within, mask=within < num_choices - begin, other=-1)
        total += (found == expert).to(tl.int32)
    tl.store(counts + expert, tl.sum(total, axis=0))


@triton.jit(do_not_specialize=["num_choices", "num_blocks"])
def _place_choices(
    chosen,
    counts,
    choices,
    block_experts,
    num_choices,
    num_experts,
    num_blocks,
    BLOCK: tl.constexpr,
    EXPERT_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    # The program behind those of the experts writes the blocks that are left.
    expert = tl.program_id(0)
    experts = tl.arange(0, EXPERT_BLOCK)
    sizes = tl.load(counts + experts, mask=experts < num_experts, other=0)
    blocks = (sizes + ROWS - 1) // ROWS
    first_block = tl.sum(tl.where(experts < expert, blocks, 0), axis=0)
    own_blocks = tl.sum(tl.where(experts == expert, blocks, 0), axis=0)
    size = tl.sum(tl.where(experts == expert, sizes, 0), axis=0)
    is_rest = expert == num_experts
    end_block = tl.where(is_rest, num_blocks, first_block + own_blocks)
    within = tl.arange(0, BLOCK)
    for begin in range(first_block, end_block, BLOCK):
        place = begin + within
        tl.store(block_experts + place, tl.where(is_rest, -1, expert), mask=place < end_block)
    for begin in range(first_block * ROWS + size, end_block * ROWS, BLOCK):
        place = begin + within
        tl.store(choices + place, -1, mask=place < end_block * ROWS)
    if own_blocks > 0:
        place = first_block * ROWS
        for begin in range(0, num_choices, BLOCK):
            number = begin + within
            is_choice = number < num_choices
            found = tl.load(chosen + number, mask=is_choice, other=-1)
            is_own = (found == expert).to(tl.int32)
            rank = tl.cumsum(is_own, axis=0) - is_own
            tl.store(choices + place + rank, number, mask=is_own > 0)
            place += tl.sum(is_own, axis=0)
