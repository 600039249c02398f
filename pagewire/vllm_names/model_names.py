"""Rows of the table: the model, its files and its tokenizer."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pagewire_shared.names.foreign_name import (
    ForeignName,
    RefusedNameError,
    no_effect,
    refused,
    works,
)


def json_text(value: Any) -> str:
    """Return JSON of a dict; text stays as it is. Raises RefusedNameError for a function."""
    if callable(value):
        raise RefusedNameError("a function cannot be sent to another process; give a dict")
    return json.dumps(dict(value)) if isinstance(value, Mapping) else str(value)


_NO_CACHE_SCALES: Final = "scales of the KV cache are those of the checkpoint"

_STORED: Final = (
    *("auto", "awq", "awq_marlin", "bitsandbytes", "compressed-tensors", "compressed_tensors"),
    *("fbgemm_fp8", "gguf", "gptq", "gptq_marlin", "mxfp4"),
)
"""Names of formats that config.json says anyway."""

MODEL: Final = (
    *works("", "", model="", revision="", tokenizer_revision="", seed=""),
    ForeignName(
        name="served_model_name", here="served_model_name", text="the first names the answers"
    ),
    ForeignName(
        name="dtype",
        here="dtype",
        text="auto, float32, bfloat16 or float16",
        meanings={"half": "float16", "float": "float32"},
    ),
    ForeignName(
        name="max_model_len",
        here="max_model_len",
        text="1k is 1000, 1K is 1024; auto and -1 take the most that fits",
    ),
    ForeignName(
        name="hf_overrides",
        here="hf_overrides",
        text="a JSON object or a dict; a function is refused",
        convert=json_text,
    ),
    ForeignName(
        name="quantization",
        here="quantization",
        text="formats that a checkpoint is stored in are read from its config.json: awq, gptq,"
        " bitsandbytes, compressed-tensors, fp8, mxfp4, gguf; int8, int4 and fp8 quantize plain"
        " weights, int8-output the output layer",
        takes=("none", "int8", "int4", "int8-output", "fp8"),
        meanings=dict.fromkeys(_STORED, "none"),
    ),
    ForeignName(
        name="load_format",
        here="load_format",
        text="weights come from safetensors or a GGUF file; pagewire convert reads pickles",
        takes=("auto", "dummy"),
        meanings={"safetensors": "auto", "gguf": "auto"},
    ),
    ForeignName(
        name="model_impl",
        here="model_impl",
        text="auto, native or transformers",
        meanings={"vllm": "native"},
    ),
    *no_effect(
        "the endpoints follow from the model, and each of them may be called",
        "task runner convert",
    ),
    *refused(
        "code of a checkpoint is never run; no model served here needs it",
        trust_remote_code="false",
    ),
    *no_effect("code of a checkpoint is never run", "code_revision"),
    *refused(
        "put config.json into the folder of the model, or use --hf-overrides", hf_config_path="none"
    ),
    *refused("only the config.json of Hugging Face is read", config_format="auto|hf"),
    *refused(
        "write --hf-overrides '{\"rope_scaling\": {...}}' or '{\"rope_theta\": 10000}'",
        rope_scaling="none",
        rope_theta="none",
    ),
    *refused(
        "--max-model-len of at most the window gives the same", disable_sliding_window="false"
    ),
    *refused(_NO_CACHE_SCALES, quantization_param_path="none", calculate_kv_scales="false"),
    *refused("attention computes in the type of --dtype", override_attention_dtype="none"),
    *refused("the devices are CPUs and CUDA", override_neuron_config="none|{}"),
    *refused(
        "pooling is chosen per request, with PoolingParams",
        override_pooler_config="none|{}",
        pooler_config="none|{}",
    ),
    *refused(
        "it is for plug-ins of vLLM, which do not run here",
        additional_config="none|{}",
        io_processor_plugin="none",
    ),
    *refused(
        "no code of a user runs in a step; use logit_bias, allowed_token_ids, bad_words or"
        " structured_outputs",
        logits_processors="none|[]",
        logits_processor_pattern="none",
    ),
    *refused("prompts are texts or token ids", enable_prompt_embeds="false"),
)

FILES: Final = (
    *works("", "", tokenizer="", download_dir="", skip_tokenizer_init=""),
    ForeignName(
        name="tokenizer_mode",
        text="each tokenizer is read in its fast form, which gives the same ids",
        neutral=("auto", "slow", "hf"),
    ),
    *no_effect(
        "threads of a frontend tokenize; --frontends adds processes",
        "tokenizer_pool_size tokenizer_pool_type tokenizer_pool_extra_config",
    ),
    *refused(
        "set HF_TOKEN in the environment, where other users do not see it",
        hf_token="none|true|false",
    ),
    *no_effect("only safetensors, tokenizers and JSON are fetched", "ignore_patterns"),
    *refused("weights are read from safetensors in one way", model_loader_extra_config="none|{}"),
    *no_effect(
        "weights are read from safetensors, mapped into memory",
        "safetensors_load_strategy use_tqdm_on_load pt_load_map_location"
        " max_parallel_loading_workers",
    ),
    *works("", "", generation_config=""),
    ForeignName(
        name="override_generation_config",
        here="override_generation_config",
        text="temperature, top_p, top_k, min_p and repetition_penalty, as JSON or a dict",
        convert=json_text,
    ),
    ForeignName(
        name="max_logprobs",
        here="max_logprobs",
        text="0 to 20; more, and -1 for the whole vocabulary, are refused",
    ),
)
