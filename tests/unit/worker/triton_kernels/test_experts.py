"""Routes, sorted rows and products of experts against torch."""

import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES

from pagewire_worker.families.plan import LinearSpec, RouterSpec
from pagewire_worker.models.experts import route
from pagewire_worker.triton_kernels.expert_matmul import collect_experts, expert_matmul
from pagewire_worker.triton_kernels.route_tokens import NO_EXPERT, route_tokens, sort_rows
from pagewire_worker.triton_kernels.tile_matmul import Tile

TILE = Tile(rows=16, columns=16, depth=16, num_stages=1)


def router(count: int, chosen: int, **fields) -> RouterSpec:
    linear = LinearSpec(parts=(("gate", count),), num_inputs=1)
    return RouterSpec(linear=linear, num_experts=count, num_chosen=chosen, **fields)


@pytest.mark.parametrize(
    "spec",
    [
        router(8, 2),
        router(60, 4, is_normalised=False, factor=2.5),
        router(5, 5, score="sigmoid"),
        router(24, 6, score="sigmoid", num_groups=6, num_chosen_groups=3, choice_bias="bias"),
        router(20, 3, num_groups=5, num_chosen_groups=2, group_best=1),
    ],
)
def test_routes_equal_those_of_torch(spec):
    torch.manual_seed(1)
    values = torch.randn(9, spec.num_experts + 1)
    values[3, : spec.num_experts] = 0.5  # all are equal: the first ones are taken
    bias = torch.randn(spec.num_experts) if spec.choice_bias else None
    weights, chosen = route_tokens(spec, values, bias, has_gate=True)
    expected, experts = route(spec, values[:, :-1], bias)
    assert torch.equal(chosen.long(), experts)
    torch.testing.assert_close(weights[:, :-1], expected)
    torch.testing.assert_close(weights[:, -1], values[:, -1].sigmoid())
    assert (route_tokens(spec, values, bias, has_gate=False)[0][:, -1] == 1.0).all()


@pytest.mark.filterwarnings("ignore:invalid value")
def test_values_that_are_no_numbers_choose_an_expert():
    values = torch.full((2, 6), torch.nan)
    weights, chosen = route_tokens(router(6, 2), values, None, has_gate=False)
    assert weights[:, :-1].isnan().all()
    assert chosen.tolist() == [[0, 1]] * 2


@pytest.mark.parametrize(("num_tokens", "count", "chosen"), [(1, 8, 2), (40, 3, 2), (700, 5, 3)])
def test_sorted_rows_hold_every_choice_once(num_tokens, count, chosen):
    torch.manual_seed(2)
    experts = torch.rand(num_tokens, count).topk(chosen).indices.int()
    experts[experts == count - 1] = 0  # one expert has no rows
    rows = sort_rows(experts, count, 16)
    flat, blocks = experts.flatten(), rows.choices.view(-1, 16)
    seen = []
    for expert, block in zip(rows.experts.tolist(), blocks, strict=True):
        own = block[block != NO_EXPERT].tolist()
        assert expert != NO_EXPERT or not own
        assert all(flat[choice] == expert for choice in own)
        assert own == sorted(own)
        seen += own
    assert sorted(seen) == list(range(num_tokens * chosen))
    assert seen == sorted(seen, key=lambda choice: (flat[choice], choice))


@pytest.mark.parametrize("has_biases", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_products_equal_those_of_each_expert(dtype, has_biases):
    torch.manual_seed(3)
    x = torch.randn(21, 40).to(dtype)
    weights = torch.randn(6, 24, 40).to(dtype)
    chosen = torch.rand(21, 6).topk(2).indices.int()
    rows = sort_rows(chosen, 6, TILE.rows)
    biases = torch.randn(6, 24).to(dtype) if has_biases else None
    found = expert_matmul(x, weights, rows, TILE, 2, biases)
    each = torch.einsum("tch,th->tc", weights.float()[chosen.flatten().long()], twice(x.float()))
    if biases is not None:
        each += biases.float()[chosen.flatten().long()]
    torch.testing.assert_close(found, each.to(dtype), **TOLERANCES[dtype])
    # A row alone has the bits that it has beside others.
    alone = expert_matmul(x[4:5], weights, sort_rows(chosen[4:5], 6, TILE.rows), TILE, 2, biases)
    assert torch.equal(alone, found[8:10])


def twice(x):
    return x.repeat_interleave(2, dim=0)


@pytest.mark.parametrize("has_shared", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_sums_are_weighted(dtype, has_shared):
    torch.manual_seed(4)
    rows, weights = torch.randn(5 * 3, 1500).to(dtype), torch.rand(5, 4)
    shared = torch.randn(5, 1500).to(dtype) if has_shared else None
    expected = (rows.float().view(5, 3, -1) * weights[:, :3, None]).sum(1)
    if shared is not None:
        expected += shared.float() * weights[:, 3:]
    found = collect_experts(rows, weights, shared)
    torch.testing.assert_close(found, expected.to(dtype), **TOLERANCES[dtype])
