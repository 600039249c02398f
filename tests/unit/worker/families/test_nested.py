"""Plans of checkpoints with towers beside the text model, and config.json files that do not do."""

from dataclasses import replace

import pytest
import torch
from transformers import Qwen2VLConfig, Qwen3VLConfig
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl

from pagewire_shared.errors import StartupError
from pagewire_worker.families.fields import UnsupportedModelError
from pagewire_worker.families.rope import read_rope
from pagewire_worker.layers.rotary import RotaryTable
from pagewire_worker.models.registry import native_form, native_plan

SIZES = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MROPE = {"type": "mrope", "mrope_section": [2, 3, 3]}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
GEMMA, MISTRAL = "Gemma3ForConditionalGeneration", "Mistral3ForConditionalGeneration"
QWEN2, QWEN3 = "Qwen2_5_VLForConditionalGeneration", "Qwen3VLForConditionalGeneration"


def config(architecture, text, **fields):
    return {"architectures": [architecture], "vision_config": {}, "text_config": text, **fields}


def without_name(plan):
    return replace(plan, architecture="")


def test_gemma3_as_published():
    """The text of the 4B model leaves out most fields."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    plan = native_plan(config(GEMMA, text, eos_token_id=[1, 106], torch_dtype="bfloat16"))
    attention = plan.attention
    assert (attention.num_heads, attention.num_kv_heads, attention.head_dim) == (8, 4, 256)
    assert (plan.vocab_size, plan.max_positions, plan.dtype) == (262208, 131072, "bfloat16")
    assert plan.logits.name is None


@pytest.mark.parametrize("is_flat", [True, False])
def test_qwen25_vl_as_published_and_as_newer_versions_write_it(is_flat):
    fields = {
        **SIZES,
        "rope_scaling": MROPE,
        "rope_theta": 1e6,
        "use_sliding_window": False,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
    }
    nested = config(QWEN2, {**fields, "model_type": "qwen2_5_vl_text"})
    flat = {"architectures": [QWEN2], "model_type": "qwen2_5_vl", "vision_config": {}, **fields}
    plan = native_plan(flat if is_flat else nested)
    plain = {**fields, "rope_scaling": None, "rms_norm_eps": 1e-5, "max_position_embeddings": 32768}
    assert plan == native_plan({"architectures": ["Qwen2ForCausalLM"], **plain})


def test_fields_of_the_text_come_before_those_of_the_top_level():
    text = {**SIZES, "model_type": "qwen3_vl_text", "vocab_size": 128}
    plan = native_plan(config(QWEN3, text, vocab_size=512, tie_word_embeddings=True))
    assert (plan.vocab_size, plan.max_positions) == (128, 128000)
    assert plan.attention.rope.theta == 5e5
    assert plan.logits.name is None


def test_ministral3_is_a_text_of_mistral3():
    rope = {**YARN, "rope_theta": 1e6, "llama_4_scaling_beta": 0.1}
    text = {**SIZES, "model_type": "ministral3", "rope_parameters": rope}
    plan = native_plan(config(MISTRAL, text))
    plain = native_plan({"architectures": ["Ministral3ForCausalLM"], **text})
    assert plan == plain
    assert plan.attention.rope.query_growth == (0.1, 64.0)


@pytest.mark.parametrize(
    ("inner", "outer", "output", "may_share"),
    [
        (None, None, "lm_head", False),
        (True, None, None, False),
        (None, True, None, False),
        (True, True, None, False),
        # Versions of transformers read either: the stored tensors decide.
        (False, True, "lm_head", True),
        (True, False, "lm_head", True),
    ],
)
def test_where_the_matrix_of_the_logits_is(inner, outer, output, may_share):
    fields = {name: value for name, value in (("tie_word_embeddings", outer),) if value is not None}
    text = {**SIZES, "model_type": "mistral"}
    if inner is not None:
        text["tie_word_embeddings"] = inner
    data = config(MISTRAL, text, **fields)
    assert native_plan(data).logits.name == output
    assert native_form(data).names.may_share_output is may_share


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (config(GEMMA, None), "text_config is missing"),
        (config(GEMMA, []), "text_config must be an object"),
        (config(GEMMA, {**SIZES, "model_type": "gemma9"}), "text_config.model_type 'gemma9'"),
        (config(MISTRAL, {**SIZES, "model_type": "mistral4"}), "only mistral, ministral3"),
        (config(QWEN3, {**SIZES, "hidden_size": 0}), "hidden_size"),
        (config(MISTRAL, {**SIZES, "model_type": "ministral3", "rope_parameters": YARN}), "beta"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(data, line):
    with pytest.raises(StartupError, match=line) as refusal:
        native_plan(data)
    assert not isinstance(refusal.value, UnsupportedModelError)


@pytest.mark.parametrize("name", ["Llama4ForConditionalGeneration", "Gemma3ForSomething"])
def test_other_architectures_with_a_text_config_are_not_native(name):
    with pytest.raises(UnsupportedModelError, match=name):
        native_plan(config(name, {**SIZES, "model_type": "llama"}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scaling", [{}, YARN], ids=["plain", "yarn"])
@pytest.mark.parametrize("model", ["qwen2", "qwen3"])
def test_text_rotates_as_if_it_had_one_position_to_the_bit(model, scaling, dtype):
    """The three positions of a token of text are equal, in sections and interleaved."""
    sections = {**MROPE, "rope_theta": 1000.0, **scaling}
    text = {**SIZES, "max_position_embeddings": 512, "rope_parameters": dict(sections)}
    text["rope_parameters"]["rope_type"] = scaling.get("type", "default")
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 4, 99, 16).to(dtype)
    positions = torch.arange(99)
    three = positions.expand(3, 1, -1)
    if model == "qwen2":
        rotary = qwen2_vl.Qwen2VLRotaryEmbedding(Qwen2VLConfig(text_config=text).text_config)
    else:
        text["head_dim"] = 16
        text["rope_parameters"]["mrope_interleaved"] = True
        rotary = qwen3_vl.Qwen3VLTextRotaryEmbedding(Qwen3VLConfig(text_config=text).text_config)
    module = qwen2_vl if model == "qwen2" else qwen3_vl
    expected = module.apply_rotary_pos_emb(query, key, *rotary(query, three))
    rope = read_rope({**text, "rope_parameters": sections}, 16)
    rotation = RotaryTable(rope, 99, torch.device("cpu"), dtype).at(positions)
    for x, wanted in zip((query, key), expected, strict=True):
        assert torch.equal(rotation.rotate(x[0].transpose(0, 1)), wanted[0].transpose(0, 1))
