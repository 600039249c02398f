"""Rotary tables and orders of dimensions equal those of transformers, for every type of scaling."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.glm.modeling_glm import apply_rotary_pos_emb as interleaved
from transformers.models.olmo2.modeling_olmo2 import apply_rotary_pos_emb as wide
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb as partial

from pagewire_shared.errors import StartupError
from pagewire_worker.families.rope import NEEDED, read_rope
from pagewire_worker.families.specs.rope_spec import RopeSpec
from pagewire_worker.layers.rotary import RotaryTable, rotary_tables, shared_tables

CPU = torch.device("cpu")
POSITIONS = 128
BASE: dict[str, Any] = {"rope_theta": 1e4, "factor": 4.0}
SCALED = {**BASE, "original_max_position_embeddings": 128}
SETTINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", **BASE},
    {"rope_type": "dynamic", **BASE},
    {"rope_type": "llama3", **SCALED, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"rope_type": "yarn", **SCALED},
    {"rope_type": "yarn", **SCALED, "truncate": False, "beta_fast": 16.0, "beta_slow": 2.0},
    {"rope_type": "yarn", **SCALED, "attention_factor": 0.7},
    {"rope_type": "yarn", **SCALED, "mscale": 0.8, "mscale_all_dim": 0.4},
    {"rope_type": "longrope", **SCALED, "short_factor": [1.0 + i / 3 for i in range(16)]},
    {
        "rope_type": "longrope",
        **SCALED,
        "attention_factor": 1.3,
        "short_factor": [1.0 + i / 3 for i in range(16)],
    },
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: one["rope_type"])
def test_scaled_tables_are_those_of_transformers(settings):
    fields = {"hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": 512}
    given = {**settings, "long_factor": [9.0] * 16}
    config = LlamaConfig(**fields, rope_parameters=dict(given))
    frequencies, factor = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config, CPU)
    rope = read_rope({**fields, "rope_parameters": settings}, 32)
    angles = torch.outer(torch.arange(POSITIONS).float(), frequencies)
    for found, expected in zip(
        rotary_tables(rope, POSITIONS), (angles.cos() * factor, angles.sin() * factor), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=2e-5)


def test_every_type_is_compared():
    assert {one["rope_type"] for one in SETTINGS} == set(NEEDED) - {"default"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("rotate", "rotary_dim", "is_interleaved", "rounds_late"),
    [
        (partial, 32, False, False),
        (partial, 24, False, False),
        (interleaved, 16, True, False),
        (interleaved, 32, True, False),
        (wide, 32, False, True),
    ],
)
def test_heads_in_our_order_are_rotated_to_the_bit(
    rotate, rotary_dim, is_interleaved, rounds_late, dtype
):
    """Dimensions are put in order while weights are read; here it is done to the heads."""
    torch.manual_seed(0)
    rope = RopeSpec(
        head_dim=32,
        rotary_dim=rotary_dim,
        max_positions=POSITIONS,
        is_interleaved=is_interleaved,
        rounds_late=rounds_late,
    )
    query, key = torch.randn(2, 9, 3, 32).to(dtype)
    positions = torch.arange(50, 59)
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float) / rotary_dim
    angles = torch.outer(positions.float(), 1.0 / (rope.theta**exponents)).repeat(1, 2)
    kept = torch.float32 if rounds_late else dtype
    tables = angles.cos().to(kept), angles.sin().to(kept)
    expected = rotate(query, key, *tables, unsqueeze_dim=1)
    order = list(range(32)) if rope.head_order is None else list(rope.head_order)
    assert sorted(order) == list(range(32))
    rotation = RotaryTable(rope, POSITIONS, CPU, dtype).at(positions)
    for x, wanted in zip((query, key), expected, strict=True):
        assert torch.equal(rotation.rotate(x[..., order]), wanted[..., order])


def test_longrope_takes_the_long_factors_for_all_positions_of_a_longer_context():
    fields = {"hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": 512}
    settings = {**SETTINGS[-2], "long_factor": [9.0 + i for i in range(16)]}
    config = LlamaConfig(**fields, rope_parameters=dict(settings))
    frequencies, factor = ROPE_INIT_FUNCTIONS["longrope"](config, CPU, seq_len=129)
    rope = read_rope({**fields, "rope_parameters": settings}, 32)
    cosines, _ = rotary_tables(rope, 129)
    angles = torch.outer(torch.arange(129).float(), frequencies)
    torch.testing.assert_close(cosines, angles.cos() * factor, rtol=1e-6, atol=2e-5)
    assert rope.first_context == 128
    assert not torch.equal(rotary_tables(rope, 128)[0], cosines[:128])


def test_longrope_without_long_factors_stays_within_its_first_context():
    rope = read_rope({"rope_parameters": SETTINGS[-1], "max_position_embeddings": 512}, 32)
    rotary_tables(rope, 128)
    with pytest.raises(StartupError, match="at most 128 without a long_factor"):
        rotary_tables(rope, 129)


@pytest.mark.parametrize(
    ("fields", "options", "named"),
    [
        ({"rope_scaling": "linear"}, {}, "rope_scaling"),
        ({"rope_scaling": {"type": "linear"}}, {}, "factor"),
        ({"rope_scaling": {"type": "linear", "factor": -1}}, {}, "factor"),
        ({"rope_scaling": {"type": "axial"}}, {}, "axial"),
        ({"partial_rotary_factor": 0.5}, {}, "partial_rotary_factor is not supported"),
        ({"partial_rotary_factor": 1.5}, {"partial": 1.0}, "above 0 and at most 1"),
        ({"partial_rotary_factor": 0.3}, {"partial": 1.0}, "must be even"),
        ({"rope_scaling": {**SETTINGS[-1], "short_factor": [1.0]}}, {}, "16 entries"),
        ({"rope_scaling": {**SETTINGS[-1], "short_factor": ["x"] * 16}}, {}, "short_factor"),
    ],
)
def test_settings_that_do_not_do(fields, options, named):
    with pytest.raises(StartupError, match=named):
        read_rope(fields, 32, **options)


def test_layers_with_equal_settings_share_a_table():
    one, other = read_rope({"rope_theta": 5.0}, 32), read_rope({}, 32)
    tables = shared_tables([one, None, other, read_rope({"rope_theta": 5.0}, 32)], lambda _: [0])
    assert tables[0] is tables[3]
    assert tables[1] is None
    assert tables[2] is not tables[0]
