"""Norm and rotation of heads, and the write to the paged cache, against torch."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES
from unit.worker.triton_kernels.device_casts import round_as_devices_do
from unit.worker.triton_kernels.rotary_cases import (
    FP8,
    LAYOUTS,
    assert_equals_torch,
    assert_same,
    bits,
    make_case,
    make_norms,
    random_case,
    to_fp8,
)

from pagewire_worker.families.specs.rope_spec import RopeSpec
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.layers.norm import RmsNorm
from pagewire_worker.layers.rotary import RotaryTable
from pagewire_worker.triton_kernels.rotary_kv_write import FP8_MAX, rotary_kv_write
from support.oracles.kernels import rotary_kv_write_oracle


@pytest.fixture(autouse=True)
def _casts(monkeypatch):
    round_as_devices_do(monkeypatch)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(22))
def test_equals_torch(seed, dtype, dice):
    assert_equals_torch(random_case(dice, dtype))


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(100, 120))
def test_equals_torch_with_a_cache_in_fp8(seed, dtype, dice):
    key_scale, value_scale = dice.choice([1.0, 0.013, 0.5, 3.0]), dice.choice([1.0, 0.02, 0.25])
    assert_equals_torch(to_fp8(random_case(dice, dtype), key_scale, value_scale))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_the_slots_of_this_step_are_written(layout, dice):
    assert_equals_torch(make_case(torch.float32, layout=layout))


def test_says_what_the_layers_say(dice):
    case = make_case(torch.float32, norms=make_norms(32, torch.float32))
    rope = RopeSpec(head_dim=32, rotary_dim=32, max_positions=40)
    table = RotaryTable(rope, 40, torch.device("cpu"), torch.float32)
    case = replace(case, cosines=table.cosines, sines=table.sines)
    expected = case.with_own_memory()
    query, key, value = case.qkv.unflatten(1, (-1, 32)).split((4, 2, 2), 1)
    query = RmsNorm(case.norms.query, case.norms.epsilon)(query)
    key = RmsNorm(case.norms.key, case.norms.epsilon)(key)
    rotation = table.at(case.positions)
    LayerCache(*expected.cache).write(case.slot_mapping, rotation.rotate(key), value)
    assert_same(case.run(), rotation.rotate(query))
    assert_same(case.memory, expected.memory)


def test_padding_leaves_the_cache_as_it_was_and_takes_nothing_from_the_others(dice):
    case = make_case(torch.float32)
    case.slot_mapping[1] = case.slot_mapping[3] = -1
    assert_equals_torch(case)


@pytest.mark.parametrize("is_fp8", [False, True])
def test_padding_alone_writes_nothing(is_fp8, dice):
    case = make_case(torch.float16, slot_mapping=torch.full((4,), -1))
    case = to_fp8(case, 1.0, 1.0) if is_fp8 else case
    before = case.with_own_memory()
    case.run()
    assert torch.equal(bits(case.memory), bits(before.memory))


@pytest.mark.parametrize("is_fp8", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_bits_of_a_row_do_not_depend_on_other_rows(dtype, is_fp8, dice):
    case = make_case(dtype, 5, norms=make_norms(32, dtype))
    case = to_fp8(case, 0.1, 0.1) if is_fp8 else case
    alone = case.of_token(3)
    place = alone.places()
    query_alone, query = alone.run(), case.run()[3:4]
    assert torch.equal(bits(query), bits(query_alone))
    for written, written_alone in zip(case.cache, alone.cache, strict=True):
        assert torch.equal(bits(written[place]), bits(written_alone[place]))


def test_the_last_slot_of_the_last_block_is_written(dice):
    assert_equals_torch(make_case(torch.float32, 2, slot_mapping=torch.tensor([23, 0])))


def test_queries_come_contiguous_of_rows_that_lie_apart(dice):
    case = make_case(torch.float32)
    queries = replace(case, qkv=case.qkv.repeat(1, 2)[:, : case.qkv.shape[1]]).run()
    assert queries.shape == (4, 4, 32)
    assert queries.is_contiguous()
    assert torch.equal(queries, case.run())


def test_position_zero_turns_nothing(dice):
    case = make_case(torch.float32, positions=torch.zeros(4, dtype=torch.int64))
    case.cosines[0], case.sines[0] = 1.0, 0.0
    assert torch.equal(case.run(), case.qkv[:, : 4 * 32].unflatten(1, (4, 32)))


def test_no_tokens_are_no_programs(dice):
    case = make_case(torch.float32, 0)
    before = case.with_own_memory()
    assert case.run().shape == (0, 4, 32)
    assert torch.equal(case.memory, before.memory)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounds_the_norm_twice_and_the_rotation_once(dtype, dice):
    case = make_case(dtype, 4, (8, 1), 128, norms=make_norms(128, dtype))
    case = replace(case, cosines=case.cosines.float(), sines=case.sines.float())
    without_rounding = replace(
        case.with_own_memory(),
        qkv=case.qkv.float(),
        memory=case.memory.float(),
        norms=replace(case.norms, query=case.norms.query.float(), key=case.norms.key.float()),
    )
    of_wide_norm = without_rounding.run(rotary_kv_write_oracle).to(dtype)
    published = case.with_own_memory().run(rotary_kv_write_oracle)
    queries = case.run()

    def share_of_other_bits(values):
        return (queries != values).float().mean().item()

    # The order of a sum may still turn a rounding now and then.
    assert share_of_other_bits(published) < 0.005
    assert share_of_other_bits(of_wide_norm) > 0.05


def test_fp8_keys_are_rounded_once(dice):
    case = make_case(torch.bfloat16, 6, (1, 4), 128)
    case = to_fp8(case, 0.25, 0.25)
    in_between = replace(case, memory=case.memory.to(torch.bfloat16), scales=None)
    in_between.run()
    twice = (in_between.cache[0].float() / 0.25).to(FP8)[case.places()]
    expected = case.with_own_memory()
    expected.run(rotary_kv_write_oracle)
    case.run()
    once = case.cache[0][case.places()]
    assert torch.equal(bits(once), bits(expected.cache[0][case.places()]))
    assert not torch.equal(bits(once), bits(twice))


def test_fp8_is_limited_to_what_it_can_hold(dice):
    case = to_fp8(make_case(torch.float32, 1, (1, 1), 16), 0.5, 0.25)
    case.cosines[:], case.sines[:] = 1.0, 0.0
    key, value = case.qkv[0, 16:32], case.qkv[0, 32:48]
    key[:4] = torch.tensor([1e6, -1e6, 225.0, -3e37])
    value[:3] = torch.tensor([113.0, -500.0, 1e-9])
    case.run()
    keys, values = (cache[case.places()].float().flatten() for cache in case.cache)
    assert keys[:4].tolist() == [FP8_MAX, -FP8_MAX, FP8_MAX, -FP8_MAX]
    assert values[:3].tolist() == [FP8_MAX, -FP8_MAX, 0.0]


@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_no_number_stays_none_in_fp8(dice):
    case = to_fp8(make_case(torch.float32, 1, (1, 1), 16), 1.0, 1.0)
    case.qkv[0, 16] = case.qkv[0, 33] = torch.nan
    case.run()
    keys, values = (cache[case.places()].float().flatten() for cache in case.cache)
    # A pair turns as one: dimension 0 takes dimension 8 with it.
    assert keys.isnan().nonzero().flatten().tolist() == [0, 8]
    assert values.isnan().nonzero().flatten().tolist() == [1]


def test_fp8_without_scales_and_scales_without_fp8_are_refused(dice):
    case = make_case(torch.float32)
    with pytest.raises(AssertionError):
        replace(to_fp8(case, 1.0, 1.0), scales=None).run()
    with pytest.raises(AssertionError):
        replace(case, scales=torch.ones(2)).run()


def test_keys_and_values_that_lie_in_other_ways_are_refused(dice):
    case = make_case(torch.float32)
    key_cache, value_cache = case.cache
    turned = value_cache.transpose(1, 2).contiguous().transpose(1, 2)
    tables = case.cosines, case.sines
    with pytest.raises(AssertionError):
        rotary_kv_write(case.qkv, case.positions, case.slot_mapping, *tables, key_cache, turned)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["float32", "float16", "fp8"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_finite_is_flagged_and_zeros_are_stored(seed, kind, dice):
    """The cache holds finite numbers only; a fault is told by its token."""
    case = random_case(dice, torch.float16 if kind == "float16" else torch.float32)
    case = replace(to_fp8(case, 0.5, 0.25) if kind == "fp8" else case, norms=None)
    num_tokens, width = case.qkv.shape
    expected = [0] * num_tokens
    for token in range(0, num_tokens, 2):
        column = width - 1 - dice.randrange(case.cache[0].shape[2] * case.cache[0].shape[3])
        case.qkv[token, column] = dice.choice([float("nan"), float("inf"), float("-inf")])
        expected[token] = int(case.slot_mapping[token] >= 0)
    plain = replace(case, memory=case.memory.clone())
    faults, told = (torch.zeros(num_tokens, dtype=torch.int64) for _ in range(2))
    case.run(partial(rotary_kv_write, faults=faults))
    plain.run(partial(rotary_kv_write_oracle, faults=told))
    assert faults.tolist() == told.tolist() == expected
    for side, other in zip(case.cache, plain.cache, strict=True):
        assert side.float().isfinite().all()
        torch.testing.assert_close(side.float(), other.float(), **TOLERANCES[torch.float16])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_overflows_when_it_is_stored_is_not_finite(dice):
    """A rotation may be larger than either half: in float16 that is soon too much."""
    case = replace(random_case(dice, torch.float16), norms=None)
    case.qkv.fill_(60000.0)
    faults, told = (torch.zeros(len(case.qkv), dtype=torch.int64) for _ in range(2))
    plain = replace(case, memory=case.memory.clone())
    case.run(partial(rotary_kv_write, faults=faults))
    plain.run(partial(rotary_kv_write_oracle, faults=told))
    assert faults.tolist() == told.tolist()
    assert case.cache[0].isfinite().all()


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_without_tables_heads_are_stored_as_they_are(dtype, dice):
    case = make_case(dtype)
    still, expected = case.with_own_memory(), case.with_own_memory()
    ones = torch.ones_like(case.cosines)
    expected = replace(expected, cosines=ones, sines=torch.zeros_like(ones))
    still = replace(still, cosines=None, sines=None)
    assert torch.equal(still.run(), expected.run())
    assert_same(still.memory, expected.memory)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_wide_norms_are_multiplied_before_rounding(dtype, dice):
    norms = make_norms(32, torch.float32)
    case = replace(make_case(dtype), norms=norms, cosines=None, sines=None)
    query = case.qkv.unflatten(1, (-1, 32))[:, :4]
    expected = RmsNorm(norms.query, norms.epsilon)(query)
    torch.testing.assert_close(case.run(), expected, **TOLERANCES[dtype])
