"""Rows of the table: several devices, and features that come later or are not for this server."""

import json
from typing import Final

from pagewire.vllm_names.model_names import json_text
from pagewire_shared.names.foreign_name import ForeignName, no_effect, refused, works

_ONE_DEVICE: Final = (
    "a model is divided by --tensor-parallel-size N and --pipeline-parallel-size N; --num-workers N"
    " serves N copies of it"
)
_MACHINES: Final = "start pagewire worker --scheduler ADDRESS on each further machine"
_EXPERTS: Final = (
    "--enable-expert-parallel gives each process as many experts, in order, and one copy"
)

PARALLEL: Final = (
    ForeignName(
        name="tensor_parallel_size",
        here="tensor_parallel_size",
        text="processes of one host on CPUs (docs/parallel/tensor-parallel.md)",
    ),
    ForeignName(
        name="pipeline_parallel_size",
        here="pipeline_parallel_size",
        text="stages of one host on CPUs (docs/parallel/pipeline-parallel.md)",
    ),
    ForeignName(
        name="enable_expert_parallel",
        here="enable_expert_parallel",
        text="whole experts in each process (docs/parallel/expert-parallel.md)",
    ),
    *refused(
        _ONE_DEVICE,
        prefill_context_parallel_size="1",
        decode_context_parallel_size="1",
    ),
    ForeignName(
        name="data_parallel_size", here="num_workers", text="copies of the model, one per worker"
    ),
    *refused(
        _MACHINES,
        data_parallel_rank="none|0",
        data_parallel_start_rank="none|0",
        data_parallel_size_local="none",
        data_parallel_address="none",
        data_parallel_rpc_port="none",
        data_parallel_hybrid_lb="false",
        data_parallel_external_lb="false",
        nnodes="1",
        node_rank="0",
        headless="false",
    ),
    ForeignName(name="api_server_count", here="frontends", text="frontends on the same ports"),
    ForeignName(
        name="distributed_executor_backend",
        here="distributed_executor_backend",
        text="mp or uniproc: ranks are processes of one host; ray: those of --rank-hosts nodes",
        takes=("auto", "mp", "uniproc", "ray"),
        meanings={"uni": "uniproc", "none": "auto"},
    ),
    *refused(
        "ray is a value of --distributed-executor-backend; no other setting of Ray is there",
        worker_use_ray="false",
        ray_workers_use_nsight="false",
        data_parallel_backend="mp",
    ),
    *refused(
        _EXPERTS,
        enable_eplb="false",
        enable_dbo="false",
        num_redundant_experts="0",
        eplb_config="none|{}",
    ),
    *no_effect(
        _EXPERTS,
        "all2all_backend dbo_decode_token_threshold dbo_prefill_token_threshold eplb_window_size"
        " eplb_step_interval eplb_log_balancedness expert_placement_strategy"
        " disable_nccl_for_dp_synchronization",
    ),
    *no_effect(
        "a model runs on one device",
        "disable_custom_all_reduce master_addr master_port dcp_kv_cache_interleave_size"
        " cp_kv_cache_interleave_size",
    ),
    *refused("workers are of one kind", worker_cls="auto"),
    ForeignName(
        name="worker_extension_cls",
        here="worker_extension_cls",
        text="MODULE.CLASS; values of JSON and no tensors; see docs/operations/extensions.md",
        meanings={"none": ""},
    ),
    *works("", "on CPUs", enable_sleep_mode=""),
)

_LORA: Final = "adapters are applied as PEFT publishes them; docs/adapters.md"
_METHODS: Final = "ngram, suffix, draft_model, eagle, eagle3, mtp and grammar"
_SPECULATION: Final = f"use --speculative-config; its methods are {_METHODS}"

ADAPTERS: Final = (
    *works(
        "",
        "",
        enable_lora="",
        lora_modules="",
        max_loras="",
        max_cpu_loras="",
        max_lora_rank="",
    ),
    *refused(
        _LORA,
        enable_lora_bias="false",
        default_mm_loras="none|{}",
        qlora_adapter_name_or_path="none",
    ),
    *no_effect(
        _LORA,
        "lora_dtype lora_extra_vocab_size fully_sharded_loras long_lora_scaling_factors",
    ),
    *refused(
        "prompt adapters are not served, and vLLM dropped them",
        enable_prompt_adapter="false",
        prompt_adapters="none|[]",
    ),
    *no_effect("prompt adapters are not served", "max_prompt_adapters max_prompt_adapter_token"),
)

SPECULATION: Final = (
    ForeignName(
        name="speculative_config",
        here="speculative_config",
        text=f"a JSON object or a dict, on CPUs; methods are {_METHODS}",
        meanings={"none": "", "{}": ""},
        convert=json_text,
    ),
    *refused(
        _SPECULATION,
        speculative_model="none",
        num_speculative_tokens="none|0",
    ),
    *no_effect(
        _SPECULATION,
        "speculative_model_quantization speculative_draft_tensor_parallel_size"
        " speculative_disable_mqa_scorer speculative_max_model_len"
        " speculative_disable_by_batch_size ngram_prompt_lookup_max ngram_prompt_lookup_min"
        " spec_decoding_acceptance_method typical_acceptance_sampler_posterior_threshold"
        " typical_acceptance_sampler_posterior_alpha disable_logprobs_during_spec_decoding"
        " num_lookahead_slots",
    ),
)

_TEXT_ONLY: Final = "prompts are text; images, audio and video come later"


def _are_zeros(text: str) -> bool:
    """Return whether limits such as {"image": 0} or image=0,video=0 allow nothing."""
    if not text.startswith("{"):
        return all(part.partition("=")[2].strip() == "0" for part in text.split(","))
    try:
        limits = json.loads(text).values()
    except (ValueError, RecursionError):
        return False
    # An object has further settings beside the count.
    return all((one.get("count") if isinstance(one, dict) else one) == 0 for one in limits)


MULTIMODAL: Final = (
    ForeignName(
        name="limit_mm_per_prompt",
        text="only the text model is loaded: 0 is the limit of images, audio and video",
        neutral=("none", "{}", '{"image": 0}'),
        is_neutral=_are_zeros,
    ),
    *no_effect("of every model only the text model is loaded", "language_model_only"),
    *refused("of every model only the text model is loaded", mm_encoder_only="false"),
    *no_effect(
        _TEXT_ONLY,
        "mm_processor_kwargs media_io_kwargs disable_mm_preprocessor_cache"
        " mm_processor_cache_gb mm_processor_cache_type mm_shm_cache_max_object_size_mb"
        " mm_encoder_tp_mode mm_encoder_attn_backend enable_multimodal_encoder_data_parallel"
        " skip_mm_profiling interleave_mm_strings video_pruning_rate allowed_local_media_path"
        " allowed_media_domains",
    ),
    *refused(_TEXT_ONLY, enable_mm_embeds="false"),
)
