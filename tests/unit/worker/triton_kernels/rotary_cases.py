"""Merged projections and caches for the rotary kernel, and what it has to leave in them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from unit.worker.triton_kernels.conftest import TOLERANCES

from pagewire_worker.triton_kernels.rotary_kv_write import HeadNorms, rotary_kv_write
from support.oracles.kernels import rotary_kv_write_oracle

FP8 = torch.float8_e4m3fn
NUM_POSITIONS = 40
NUM_BLOCKS = 6
HEADS = [(1, 1), (2, 1), (4, 2), (6, 6), (9, 3), (12, 4), (10, 9)]
HEAD_DIMS = [16, 32, 64, 80, 96, 128]


@dataclass(frozen=True)
class Layout:
    """How keys and values lie in one memory; its size is of [block_size, kv_heads, head_dim]."""

    size: Callable[[int, int, int], tuple[int, ...]]
    views: Callable[[Tensor], tuple[Tensor, Tensor]]


LAYOUTS = {
    "keys and values apart": Layout(
        lambda *size: (2, NUM_BLOCKS, *size), lambda memory: memory.unbind(0)
    ),
    "all layers in one block": Layout(
        lambda *size: (NUM_BLOCKS, 3, 2, *size), lambda memory: memory[:, 1].unbind(1)
    ),
    "heads outside tokens": Layout(
        lambda tokens, heads, dim: (NUM_BLOCKS, 2, heads, tokens, dim),
        lambda memory: memory.transpose(2, 3).unbind(1),
    ),
    "heads outside blocks": Layout(
        lambda tokens, heads, dim: (2, heads, NUM_BLOCKS, tokens, dim),
        lambda memory: memory.permute(0, 2, 3, 1, 4).unbind(0),
    ),
    "gaps between heads": Layout(
        lambda tokens, heads, dim: (NUM_BLOCKS, tokens, 2, heads, dim + 3),
        lambda memory: memory[..., :-3].unbind(2),
    ),
}


@dataclass(frozen=True)
class Case:
    """What the kernel takes; `memory` is all that lies under the cache, other layers included."""

    qkv: Tensor
    positions: Tensor
    slot_mapping: Tensor
    cosines: Tensor
    sines: Tensor
    memory: Tensor
    layout: Layout
    norms: HeadNorms | None = None
    scales: Tensor | None = None
    query_scales: Tensor | None = None

    @property
    def cache(self):
        return self.layout.views(self.memory)

    def run(self, function=rotary_kv_write):
        return function(
            self.qkv,
            self.positions,
            self.slot_mapping,
            self.cosines,
            self.sines,
            *self.cache,
            self.norms,
            self.scales,
            query_scales=self.query_scales,
        )

    def with_own_memory(self):
        return replace(self, memory=self.memory.clone())

    def of_token(self, index):
        """The same of one token alone, with memory of its own."""
        one = slice(index, index + 1)
        return replace(
            self.with_own_memory(),
            qkv=self.qkv[one],
            positions=self.positions[one],
            slot_mapping=self.slot_mapping[one],
        )

    def places(self):
        """Blocks and offsets that are written."""
        block_size = self.cache[0].shape[1]
        slots = self.slot_mapping[self.slot_mapping >= 0]
        return slots // block_size, slots % block_size


def make_norms(head_dim, dtype):
    query, key = torch.randn(2, head_dim).mul(0.2).add(1.0).to(dtype)
    return HeadNorms(query, key, 1e-6)


def make_case(
    dtype,
    num_tokens=4,
    heads=(4, 2),
    head_dim=32,
    layout="keys and values apart",
    block_size=4,
    **changes,
):
    num_heads, num_kv_heads = heads
    angles = torch.rand(NUM_POSITIONS, head_dim // 2).mul(6.3).repeat(1, 2)
    size = LAYOUTS[layout].size(block_size, num_kv_heads, head_dim)
    case = Case(
        qkv=torch.randn(num_tokens, (num_heads + 2 * num_kv_heads) * head_dim).to(dtype),
        positions=torch.randint(NUM_POSITIONS, (num_tokens,)),
        slot_mapping=torch.randperm(NUM_BLOCKS * block_size)[:num_tokens],
        cosines=angles.cos().to(dtype),
        sines=angles.sin().to(dtype),
        memory=torch.randn(size).to(dtype),
        layout=LAYOUTS[layout],
    )
    return replace(case, **changes)


def random_case(dice, dtype):
    head_dim, num_tokens = dice.choice(HEAD_DIMS), dice.randint(1, 3)
    case = make_case(
        dtype,
        num_tokens,
        dice.choice(HEADS),
        head_dim,
        dice.choice(list(LAYOUTS)),
        dice.choice([1, 3, 4, 16]),
        norms=make_norms(head_dim, dtype) if dice.random() < 0.5 else None,
    )
    if dice.random() < 0.5:
        case = replace(case, cosines=case.cosines.float(), sines=case.sines.float())
    if dice.random() < 0.3:
        case = replace(case, query_scales=torch.rand(NUM_POSITIONS) + 0.5)
    if dice.random() < 0.3:
        case.slot_mapping[dice.randrange(num_tokens)] = -1
    if dice.random() < 0.3:  # rows lie apart
        case = replace(case, qkv=case.qkv.repeat(1, 2)[:, : case.qkv.shape[1]])
    return case


def to_fp8(case, key_scale, value_scale):
    return replace(case, memory=case.memory.to(FP8), scales=torch.tensor([key_scale, value_scale]))


def bits(tensor):
    return tensor.contiguous().view(
        {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.itemsize]
    )


def fp8_steps(values):
    """Return whole numbers that grow by one from each fp8 number to the next."""
    patterns = bits(values).int()
    return torch.where(patterns < 128, patterns, 128 - patterns)


def assert_same(actual, expected):
    if actual.dtype == FP8:
        steps = (fp8_steps(actual) - fp8_steps(expected)).abs()
        assert steps.max() <= 1
        # Of a rounding that another order of a sum turns there are few.
        assert (steps > 0).float().mean() < 0.01
    else:
        torch.testing.assert_close(actual, expected, **TOLERANCES[actual.dtype])


def assert_equals_torch(case):
    before, expected = case.with_own_memory(), case.with_own_memory()
    assert_same(case.run(), expected.run(rotary_kv_write_oracle))
    places = case.places()
    for written, wanted, old in zip(case.cache, expected.cache, before.cache, strict=True):
        if len(places[0]):
            assert_same(written[places], wanted[places])
        old[places] = written[places]
    # What is in no slot of this step has the bits it had.
    assert torch.equal(bits(case.memory), bits(before.memory))
