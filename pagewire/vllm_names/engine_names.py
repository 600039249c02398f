"""Rows of the table: memory, scheduling and kernels."""

from typing import Any, Final

from pagewire.vllm_names.model_names import json_text
from pagewire_shared.names.foreign_name import ForeignName, no_effect, refused, works


def _gibibytes(value: Any) -> str:
    return f"{value}GiB"


MEMORY: Final = (
    *works("", "", block_size="", gpu_memory_utilization="", enable_prefix_caching=""),
    ForeignName(
        name="kv_cache_memory_bytes", here="kv_cache_memory", text="bytes, or a size such as 2GiB"
    ),
    ForeignName(
        name="kv_cache_dtype",
        here="kv_cache_dtype",
        text="auto is the type of the weights; 8-bit floats are fp8_e4m3; int8 is ours, for CPUs",
        takes=("auto", "fp8_e4m3", "int8"),
        meanings={"fp8": "fp8_e4m3"},
    ),
    ForeignName(
        name="kv_offloading_size",
        here="kvstore_memory",
        text="in GiB; blocks go to the KV store that is started here",
        convert=_gibibytes,
    ),
    *no_effect("blocks go to KV stores of our own (--kvstore)", "kv_offloading_backend"),
    *no_effect(
        "a sequence that is preempted finds its blocks in the KV store (--kvstore-memory)",
        "swap_space preemption_mode",
    ),
    *refused("weights stay on their device; --quantization makes them smaller", cpu_offload_gb="0"),
    *refused("use --kv-cache-memory", num_gpu_blocks_override="none"),
    *no_effect("blocks are named by SHA-256 of their contents", "prefix_caching_hash_algo"),
    *no_effect("one manager keeps all kinds of cache", "disable_hybrid_kv_cache_manager"),
    *no_effect("there is one manager of blocks", "use_v2_block_manager"),
    ForeignName(
        name="kv_transfer_config",
        here="kv_transfer_config",
        text="a JSON object or a dict; MooncakeStoreConnector and LMCacheConnectorV1, kv_both only",
        meanings={"none": "", "{}": ""},
        convert=json_text,
    ),
    *refused("layers do not share KV blocks", kv_sharing_fast_prefill="false"),
    ForeignName(
        name="kv_events_config",
        here="kv_events_config",
        text="a JSON object or a dict; needs pagewire[events]; see docs/operations/kv-events.md",
        meanings={"none": "", "{}": ""},
        convert=json_text,
    ),
    *refused(
        "--prefill-workers, --decode-workers and --kvstore move KV blocks; see docs/connectors.md",
        ec_transfer_config="none|{}",
    ),
    *no_effect(
        "models with a state of their own are not served",
        "mamba_cache_dtype mamba_ssm_cache_dtype mamba_block_size",
    ),
    *no_effect("/metrics always has them", "kv_cache_metrics kv_cache_metrics_sample"),
)

SCHEDULING: Final = (
    ForeignName(
        name="max_num_batched_tokens", here="max_num_batched_tokens", text="8k is 8000, 8K is 8192"
    ),
    ForeignName(name="max_num_seqs", here="max_num_seqs", text="1k is 1000, 1K is 1024"),
    ForeignName(
        name="scheduling_policy",
        here="queue_policy",
        text="both are --queue-policy fcfs: by priority where requests have one, then by arrival",
        takes=("fcfs", "priority"),
        meanings={"fcfs": "fcfs", "priority": "fcfs"},
    ),
    *no_effect("long prompts are always computed in parts", "enable_chunked_prefill"),
    *no_effect(
        "steps are always planned ahead (--steps-in-flight)",
        "num_scheduler_steps multi_step_stream_outputs async_scheduling disable_async_output_proc",
    ),
    *no_effect(
        "the scheduler divides each step among prompts and answers by itself",
        "max_num_partial_prefills max_long_partial_prefills long_prefill_token_threshold"
        " scheduler_delay_factor disable_chunked_mm_input",
    ),
    *no_effect("tokens are sent as soon as they are there", "stream_interval"),
    *refused(
        "a policy is a module of the scheduler; CONTRIBUTING.md says where it goes",
        scheduler_cls="none",
    ),
)

KERNELS: Final = (
    *works("", "", enforce_eager=""),
    ForeignName(
        name="attention_backend",
        here="attention_backend",
        text="auto, reference, sdpa or triton",
        takes=("auto", "reference", "sdpa", "triton"),
        meanings={"triton_attn": "triton", "torch_sdpa": "sdpa", "cpu_attn": "auto"},
    ),
    *refused("use --attention-backend", attention_config="none|{}"),
    *no_effect(
        "kernels are compiled on installation; --enforce-eager turns CUDA graphs off",
        "compilation_config optimization_level max_seq_len_to_capture max_context_len_to_capture"
        " cuda_graph_sizes cudagraph_capture_sizes max_cudagraph_capture_size",
    ),
    *no_effect("attention to shared prefixes is computed like any other", "disable_cascade_attn"),
    ForeignName(
        name="device",
        here="device",
        text="the devices are CPUs and CUDA",
        takes=("auto", "cpu", "cuda"),
        meanings={"gpu": "cuda"},
    ),
)

STRUCTURED_OUTPUTS: Final = (
    *works("", "", reasoning_parser=""),
    *no_effect(
        "grammars are compiled with llguidance",
        "guided_decoding_backend guided_decoding_disable_fallback",
    ),
    *refused(
        "white space and further properties follow from the schema",
        guided_decoding_disable_any_whitespace="false",
        guided_decoding_disable_additional_properties="false",
    ),
    *refused(
        "grammars are compiled with llguidance; --reasoning-parser names the format of thoughts",
        structured_outputs_config="none|{}",
    ),
    *no_effect("the chat template or --reasoning-parser tells the format", "enable_reasoning"),
    *refused("formats of thoughts are part of the frontend", reasoning_parser_plugin="none|"),
    ForeignName(
        name="logprobs_mode",
        text="log-probabilities are those of the raw logits",
        neutral=("raw_logprobs",),
    ),
)
