"""Plans of published config.json files, and fields that do not do."""

from dataclasses import replace

import pytest

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.fields import UnsupportedModelError
from pagewire_worker.models.registry import native_form, native_plan

SIZES = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SLIDING, FULL = "sliding_attention", "full_attention"


def plan_of(architecture, **fields):
    return native_plan({"architectures": [architecture], **SIZES, **fields})


def test_gemma2_without_the_fields_that_its_first_checkpoints_lack():
    plan = plan_of("Gemma2ForCausalLM", sliding_window=4096)
    assert [kind.window for kind in plan.kinds] == [4096, None] * 3 + [4096]
    assert plan.kinds[0] == AttentionKind(4096, 1 / 16, 50.0)
    assert plan.logits.softcap == 30.0
    assert plan.logits.name is None
    assert plan.attention.head_dim == 256
    assert plan.layers[0].mlp.activation == "gelu_tanh"
    assert plan.cache_shape.window is None


def test_null_means_no_cap():
    fields = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    plan = plan_of("Gemma2ForCausalLM", **fields)
    assert plan.kinds[0].softcap is plan.logits.softcap is None


def test_gemma3_rotates_layers_with_a_window_in_another_way():
    old = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    new = {
        "rope_parameters": {
            FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            SLIDING: {"rope_type": "default", "rope_theta": 1e4},
        }
    }
    plans = [plan_of("Gemma3ForCausalLM", sliding_window=512, **one) for one in (old, new)]
    assert plans[0] == plans[1]
    layers = plans[0].layers
    assert [layer.attention.kind.window for layer in layers] == [512] * 5 + [None, 512]
    local, other = layers[0].attention.rope, layers[5].attention.rope
    assert (local.theta, local.rope_type) == (1e4, "default")
    assert (other.theta, other.rope_type, dict(other.settings)) == (1e6, "linear", {"factor": 8.0})


def test_smollm3_leaves_every_fourth_layer_without_positions():
    plan = plan_of("SmolLM3ForCausalLM")
    assert [layer.attention.rope is None for layer in plan.layers] == [
        False,
        False,
        False,
        True,
    ] * 1 + [False, False, False]
    assert plan.attention.rope.theta == 2e6


def test_longrope_has_older_names():
    settings = {"type": "su", "short_factor": [1.5] * 8, "long_factor": [2.0] * 8}
    rope = plan_of("Phi3ForCausalLM", rope_scaling=settings).attention.rope
    assert (rope.rope_type, rope.settings["short_factor"]) == ("longrope", [1.5] * 8)
    assert rope.settings["original_max_position_embeddings"] == 4096


def test_families_whose_names_begin_alike_are_told_apart():
    old, new = (plan_of(f"{name}ForCausalLM", head_dim=16) for name in ("Glm", "Glm4"))
    assert old.layers[0].mlp_norms.after is None
    assert new.layers[0].mlp_norms.after is not None
    assert replace(new, architecture="", layers=()) == replace(old, architecture="", layers=())


@pytest.mark.parametrize(
    ("name", "form", "has_logits"),
    [
        ("Glm4ForCausalLM", "Glm4ForCausalLM", True),
        ("Gemma2Model", "Gemma2ForCausalLM", False),
        ("Phi3ForSequenceClassification", "Phi3ForCausalLM", False),
    ],
)
def test_forms(name, form, has_logits):
    found = native_form({"architectures": [name], "num_labels": 3})
    assert (found.family, found.has_logits) == (form, has_logits)


@pytest.mark.parametrize(
    ("architecture", "fields", "named"),
    [
        ("Gemma2ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional"),
        ("Gemma3Model", {"text_config": {}}, "only the text"),
        ("Olmo2ForCausalLM", {"hidden_act": "relu2"}, "hidden_act"),
        ("GraniteForCausalLM", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ],
)
def test_what_transformers_has_to_do(architecture, fields, named):
    with pytest.raises(UnsupportedModelError, match=named):
        plan_of(architecture, **fields)


@pytest.mark.parametrize(
    ("architecture", "fields", "named"),
    [
        ("Gemma2ForCausalLM", {"layer_types": [FULL]}, "layer_types must have 7 entries"),
        ("Gemma2ForCausalLM", {"layer_types": ["x"] * 7}, "layer_types"),
        ("Gemma2ForCausalLM", {"sliding_window": None}, "sliding_window"),
        ("Gemma2ForCausalLM", {"attn_logit_softcapping": 0}, "attn_logit_softcapping"),
        ("MinistralForCausalLM", {"layer_types": [FULL]}, "layer_types"),
        ("GraniteForCausalLM", {"logits_scaling": "8"}, "logits_scaling"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1]}, "no_rope_layers"),
        ("Starcoder2ForCausalLM", {"norm_epsilon": 0}, "norm_epsilon"),
    ],
)
def test_fields_that_do_not_do(architecture, fields, named):
    with pytest.raises(StartupError, match=named) as refusal:
        plan_of(architecture, **fields)
    assert not isinstance(refusal.value, UnsupportedModelError)
