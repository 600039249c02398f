"""The whole table of vLLM's names for flags and keywords, and its application to given values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pagewire.vllm_names import engine_names, feature_names, model_names, server_names
from pagewire_shared.errors import StartupError
from pagewire_shared.names.foreign_name import ForeignName, RefusedNameError, meaning_of

SUBJECTS: Final[tuple[tuple[str, tuple[ForeignName, ...]], ...]] = (
    ("The model", model_names.MODEL),
    ("Its files and tokenizer", model_names.FILES),
    ("Memory and KV blocks", engine_names.MEMORY),
    ("Scheduling", engine_names.SCHEDULING),
    ("Kernels and devices", engine_names.KERNELS),
    ("Several devices and machines", feature_names.PARALLEL),
    ("Structured outputs and thoughts", engine_names.STRUCTURED_OUTPUTS),
    ("Adapters", feature_names.ADAPTERS),
    ("Speculative decoding", feature_names.SPECULATION),
    ("Images, audio and video", feature_names.MULTIMODAL),
    ("HTTP", server_names.HTTP),
    ("Answers", server_names.ANSWERS),
    ("Logs and metrics", server_names.OBSERVABILITY),
)

ROWS: Final = {row.name: row for _, rows in SUBJECTS for row in rows}

SHORT_FLAGS: Final = {
    "-ac": "attention_config",
    "-asc": "api_server_count",
    "-cc": "compilation_config",
    "-dcp": "decode_context_parallel_size",
    "-dp": "data_parallel_size",
    "-dpa": "data_parallel_address",
    "-dpb": "data_parallel_backend",
    "-dpe": "data_parallel_external_lb",
    "-dph": "data_parallel_hybrid_lb",
    "-dpl": "data_parallel_size_local",
    "-dpn": "data_parallel_rank",
    "-dpp": "data_parallel_rpc_port",
    "-dpr": "data_parallel_start_rank",
    "-n": "nnodes",
    "-O": "compilation_config",
    "-pcp": "prefill_context_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-q": "quantization",
    "-r": "node_rank",
    "-spec-draft-tp": "speculative_draft_tensor_parallel_size",
    "-tp": "tensor_parallel_size",
}

_SWITCHES_WITHOUT_EFFECT: Final = frozenset(
    [
        "aggregate_engine_logging",
        "async_scheduling",
        "cudagraph_metrics",
        "disable_async_output_proc",
        "disable_cascade_attn",
        "disable_chunked_mm_input",
        "disable_custom_all_reduce",
        "disable_frontend_multiprocessing",
        "disable_hybrid_kv_cache_manager",
        "disable_log_requests",
        "disable_log_stats",
        "enable_ssl_refresh",
        "disable_logprobs_during_spec_decoding",
        "disable_mm_preprocessor_cache",
        "disable_nccl_for_dp_synchronization",
        "disable_uvicorn_access_log",
        "enable_auto_tool_choice",
        "enable_chunked_prefill",
        "enable_log_requests",
        "enable_multimodal_encoder_data_parallel",
        "enable_prompt_tokens_details",
        "enable_reasoning",
        "enable_request_id_headers",
        "eplb_log_balancedness",
        "exclude_tools_when_tool_choice_none",
        "fully_sharded_loras",
        "guided_decoding_disable_fallback",
        "interleave_mm_strings",
        "kv_cache_metrics",
        "language_model_only",
        "log_error_stack",
        "multi_step_stream_outputs",
        "skip_mm_profiling",
        "speculative_disable_mqa_scorer",
        "use_tqdm_on_load",
        "use_v2_block_manager",
    ]
)

LISTS: Final = frozenset(
    [
        "allowed_media_domains",
        "collect_detailed_traces",
        "cuda_graph_sizes",
        "cudagraph_capture_sizes",
        "ignore_patterns",
        "logits_processors",
        "long_lora_scaling_factors",
        "middleware",
        "prompt_adapters",
    ]
)
"""Names whose flags take several values."""


def is_switch(row: ForeignName) -> bool:
    """Whether the flag of a name takes no value."""
    return row.neutral == ("false",) or row.name in _SWITCHES_WITHOUT_EFFECT


@dataclass(frozen=True, slots=True)
class Translation:
    """Settings of `serve` by name, and one line for each name without effect."""

    values: Mapping[str, Any]
    notes: tuple[str, ...]


def translate(given: Mapping[str, Any], spelled: Callable[[str], str] = str) -> Translation:
    """Return the settings of `serve` for vLLM's names; other names stay.

    Args:
        given: Name to value, as a keyword or the text of a flag.
        spelled: From a name to what the user wrote, for messages.

    Raises:
        StartupError: A name or value that cannot be had here, with what to use instead.
    """
    values: dict[str, Any] = {}
    notes = []
    for name, value in given.items():
        if name not in ROWS:
            values[name] = value
            continue
        row = ROWS[name]
        if value is None and row.here == name:
            values[name] = None
            continue
        try:
            meaning = meaning_of(row, value, spelled(name))
        except RefusedNameError as error:
            raise StartupError(str(error), field=name) from None
        if meaning.note:
            notes.append(meaning.note)
        if not meaning.name:
            continue
        if meaning.name != name and given.get(meaning.name) is not None:
            raise StartupError(
                f"{spelled(name)}: {spelled(meaning.name)} says the same; give one", field=name
            )
        values[meaning.name] = meaning.value
    return Translation(values, tuple(notes))
