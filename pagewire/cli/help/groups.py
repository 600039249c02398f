"""The groups of flags in `--help`, and the flags that the short help shows."""

from typing import Final

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "model": (
        *("model", "served_model_name", "tokenizer", "tokenizer_revision", "revision"),
        *("download_dir", "hf_overrides", "skip_tokenizer_init", "chat_template"),
        *("generation_config", "override_generation_config", "max_logprobs", "max_model_len"),
        *("dtype", "quantization", "load_format", "model_impl", "device", "seed"),
    ),
    "sampling": (
        *("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "stop"),
        *("ignore_eos", "presence_penalty", "frequency_penalty", "repetition_penalty"),
        *("logit_bias", "bad_words", "truncate_prompt_tokens", "structured_json"),
        *("structured_regex", "structured_choice", "structured_grammar"),
    ),
    "server": ("server", "server_api_key", "use_running", "base_url", "endpoint"),
    "API": (
        *(
            "host",
            "port",
            "grpc_port",
            "frontends",
            "standby_scheduler",
            "api_key",
            "api_key_file",
            "cors_origin",
        ),
        *("ssl_certfile", "ssl_keyfile", "ssl_ca_certs", "ssl_cert_reqs"),
        *("audit_log",),
    ),
    "load": (
        *("num_prompts", "request_rate", "max_concurrency", "input_len", "output_len"),
        *("json", "html"),
    ),
    "messages": ("tool_call_parser", "reasoning_parser", "tool_parser_plugin"),
    "adapters": (
        *("enable_lora", "lora_modules", "lora_dir", "lora_roots", "max_loras"),
        *("max_cpu_loras", "max_lora_rank", "lora_store", "lora_store_bytes"),
    ),
    "new weights": ("weights_dir", "weights_dir_bytes"),
    "memory and batches": (
        *("kv_cache_memory", "gpu_memory_utilization", "kv_cache_dtype", "block_size"),
        *("max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching"),
        *("speculative_config", "enable_sleep_mode", "sleep_after_seconds"),
    ),
    "queues": ("queue_policy", "tenant_weight", "max_num_waiting"),
    "workers": (
        *("num_workers", "prefill_workers", "decode_workers", "handoff", "steps_in_flight"),
        *("tensor_parallel_size", "pipeline_parallel_size", "distributed_executor_backend"),
        *("enable_expert_parallel", "rank_hosts", "rank_listen", "rank_key_file"),
        *("sum_slices", "watchdog", "worker_extension_cls"),
    ),
    "kernels": (
        *("cpu_backend", "cpu_isa", "attention_backend", "linear_backend", "enforce_eager"),
    ),
    "KV store": (
        *("kvstore", "num_kvstores", "kvstore_copies"),
        *("kvstore_memory", "kvstore_disk_path", "kvstore_disk_size"),
        *("kvstore_redis", "kvstore_adapter_bytes", "kv_offload", "kv_load", "kv_key_file"),
        *("kv_connector", "kv_transfer_config"),
        "kv_events_config",
    ),
    "logs and metrics": (
        "log_level",
        "log_format",
        "metrics_port",
        "metrics_host",
        "metrics_token_file",
        "protect_metrics",
        "expert_metrics",
        "otlp_traces_endpoint",
        "trace_ratio",
        "trace_slow_seconds",
        "profiler_dir",
    ),
}
"""Group to its settings, in the order of `--help`; a setting is in one group."""

OTHER: Final = "other"
"""Group of settings that no group has."""

COMMON: Final = frozenset(
    (
        *("server", "server_api_key", "max_tokens", "temperature", "top_p", "stop", "seed"),
        *("model", "served_model_name", "device", "dtype", "quantization", "max_model_len"),
        *("tokenizer", "chat_template", "hf_overrides", "generation_config"),
        *("enable_lora", "lora_modules", "max_loras", "max_lora_rank"),
        *("kv_cache_memory", "gpu_memory_utilization", "max_num_seqs", "enable_prefix_caching"),
        *("max_num_batched_tokens", "num_workers", "kvstore", "kvstore_disk_path", "kv_offload"),
        *("host", "port", "api_key", "api_key_file", "cors_origin", "tool_call_parser"),
        *("reasoning_parser", "log_level", "metrics_port", "use_running"),
        *("base_url", "endpoint", "num_prompts", "request_rate", "max_concurrency"),
        *("input_len", "output_len", "json", "html"),
    )
)
"""Settings of the short help."""

SERVING_ONLY: Final = frozenset(
    ("API", "adapters", "messages", "queues", "workers", "kernels", "KV store", "logs and metrics")
)
"""Groups that the short help of commands with sampling flags leaves out."""


def group_of(name: str) -> str:
    """Return the group of a setting."""
    return next((group for group, names in GROUPS.items() if name in names), OTHER)
