"""Every architecture that docs/models.md says runs through transformers, in the smallest form.

Examining and checking a model at the start compares it with transformers' plain form; here it is
done for all of them, over random weights.
"""

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from pagewire_worker.attention.registry import make_attention
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.transformers_backend.backend import TransformersBackend
from pagewire_worker.transformers_backend.check import BLOCK_SIZE, check_against_plain
from pagewire_worker.transformers_backend.config_checks import check_class
from pagewire_worker.transformers_backend.interface import NAME, register
from pagewire_worker.transformers_backend.model import split
from support.checkpoints.fallback_checkpoints import VOCAB
from support.products import cases_of

CPU = torch.device("cpu")
NUM_LAYERS = 4
MAX_LENGTH = 128
MAX_PARAMETERS = 2 * 10**7

NAMES = """
afmoe apertus arcee aria_text biogpt bitnet cohere cohere2 ctrl diffllama ernie4_5 ernie4_5_moe
exaone4 flex_olmo gemma gemma2 gemma3_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neox granite
granitemoe granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe jais2 jetmoe llama minimax_m2
ministral ministral3 mistral mixtral nemotron olmo olmo2 olmo3 olmoe opt persimmon phi phi3 phimoe
qwen2 qwen2_moe qwen3 qwen3_moe seed_oss smollm3 stablelm starcoder2 vaultgemma
"""

IN_LONG_RUN = """
afmoe aria_text biogpt cohere2 diffllama exaone4 gemma3_text gpt2 granitemoeshared helium jetmoe
minimax_m2 opt phimoe qwen2 stablelm
"""
"""The others are in the whole product."""

# Set where the configuration of a model type has a field of that name.
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "ffn_dim": 96,
    "word_embed_proj_dim": 64,
    "vocab_size": VOCAB,
    "max_position_embeddings": MAX_LENGTH,
    "sliding_window": 5,
    "query_pre_attn_scalar": 32,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


def small_config(model_type: str) -> Any:
    make = CONFIG_MAPPING[model_type]
    usual = make()
    fields = {name: value for name, value in SMALL.items() if hasattr(usual, name)}
    if getattr(usual, "layer_types", None):
        kinds = list(dict.fromkeys(usual.layer_types))
        fields["layer_types"] = [kinds[index % len(kinds)] for index in range(NUM_LAYERS)]
    return make(**fields)


def small_model(config: Any) -> Any:
    with torch.device("meta"):
        shape = AutoModelForCausalLM.from_config(config)
    assert sum(one.numel() for one in shape.parameters()) < MAX_PARAMETERS
    model = AutoModelForCausalLM.from_config(config, attn_implementation=NAME, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


@pytest.mark.long
@pytest.mark.parametrize("model_type", cases_of(NAMES.split(), IN_LONG_RUN.split()))
@torch.inference_mode()
def test_an_architecture_passes_the_check(model_type: str) -> None:
    register()
    config = small_config(model_type)
    causal = small_model(config)
    check_class(config, type(causal).__name__)
    model = split(causal, config.vocab_size, CPU)
    attentions = {
        layer.kind: make_attention("auto", CPU, torch.float32, BLOCK_SIZE, layer.kind)
        for layer in model.layers
    }

    def backend(cache: KvCache) -> TransformersBackend:
        return TransformersBackend(
            model=model, kv_cache=cache, attentions=attentions, version="0", on_layer=lambda: None
        )

    check_against_plain(model, backend, MAX_LENGTH, VOCAB, CPU, torch.float32)
    assert len(model.layers) >= NUM_LAYERS
