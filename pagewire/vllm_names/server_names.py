"""Rows of the table: the HTTP server of `vllm serve`, its log and what it shows."""

import json
from typing import Any, Final

from pagewire.vllm_names.model_names import json_text
from pagewire_shared.names.foreign_name import (
    ForeignName,
    RefusedNameError,
    no_effect,
    refused,
    works,
)


def _origins(value: Any) -> list[str]:
    try:
        found = json.loads(value) if isinstance(value, str) else list(value)
    except ValueError:
        found = [value]
    if isinstance(found, list) and all(isinstance(one, str) for one in found):
        return found
    raise RefusedNameError(f"{value!r} is not a JSON list of origins")


_LOGGED: Final = (
    "--log-level info logs one line per request, and warning none; prompts are never logged"
)
_HEADERS: Final = "set PAGEWIRE_MAX_HEADER_BYTES and PAGEWIRE_MAX_HEADER_COUNT"

HTTP: Final = (
    *works("", "", host="", port="", api_key="", chat_template="", tool_call_parser="", config=""),
    ForeignName(
        name="tool_parser_plugin", here="tool_parser_plugin", text="MODULE:FACTORY; docs/tools.md"
    ),
    ForeignName(
        name="allowed_origins",
        here="cors_origin",
        text="without it no origin may call, as opposed to all",
        convert=_origins,
    ),
    *refused("browsers send the API key in a header, never in cookies", allow_credentials="false"),
    *refused(
        "CORS allows the methods and headers of the API",
        allowed_methods='["*"]|*',
        allowed_headers='["*"]|*',
    ),
    *works("", "", ssl_keyfile="", ssl_certfile="", ssl_ca_certs=""),
    *works("", "gRPC asks clients for a certificate with 2 only", ssl_cert_reqs=""),
    *no_effect("new files are taken up in any case", "enable_ssl_refresh"),
    *refused("let the proxy remove the prefix from paths", root_path="none|"),
    *refused("put a proxy in front", middleware="none|[]"),
    *refused("a frontend listens on --host and --port", uds="none"),
    *no_effect(
        "HTTP and the engine are always in different processes", "disable_frontend_multiprocessing"
    ),
    *refused(
        _HEADERS, h11_max_incomplete_event_size="none|4194304", h11_max_header_count="none|256"
    ),
    *refused("put a proxy in front that hides /docs", disable_fastapi_docs="false"),
    *no_effect("every answer has x-request-id", "enable_request_id_headers"),
)

ANSWERS: Final = (
    *no_effect(
        "tool_choice auto works wherever the format of calls is known", "enable_auto_tool_choice"
    ),
    *refused("answers have the role assistant", response_role="assistant"),
    *refused(
        "ask with return_token_ids in the request",
        return_tokens_as_token_ids="false",
        tokens_only="false",
    ),
    ForeignName(
        name="chat_template_content_format",
        text="templates get the content of a message as text, or as text parts where they need it",
        neutral=("auto", "string"),
    ),
    *refused(
        "templates come from the operator: --chat-template", trust_request_chat_template="false"
    ),
    *no_effect("usage always has prompt_tokens_details", "enable_prompt_tokens_details"),
    *refused(
        "ask with stream_options.include_usage in the request", enable_force_include_usage="false"
    ),
    *no_effect(
        "with tool_choice none the prompt never has tools", "exclude_tools_when_tool_choice_none"
    ),
    *refused(
        "with tool_choice none the prompt never has tools",
        expand_tools_even_if_tool_choice_none="false",
    ),
    *refused("tools run in the client", tool_server="none"),
    *refused(
        "/tokenize shows tokens; the tokenizer's files are with the model",
        enable_tokenizer_info_endpoint="false",
    ),
    *refused("/metrics has the load", enable_server_load_tracking="false"),
)


def _profiler_dir(value: Any) -> str:
    """Return the folder of a profiler config. Raises RefusedNameError for anything else in it."""
    try:
        config = json.loads(json_text(value))
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise RefusedNameError('give a JSON object, such as {"torch_profiler_dir": "traces"}')
    known = ("profiler", "torch_profiler_dir")
    others = sorted(name for name in config if name not in known)
    if others or config.get("profiler", "torch") != "torch" or "torch_profiler_dir" not in config:
        raise RefusedNameError(
            f"profiler torch and torch_profiler_dir are taken, not {', '.join(others) or value}"
        )
    return str(config["torch_profiler_dir"])


OBSERVABILITY: Final = (
    *no_effect(_LOGGED, "disable_log_requests enable_log_requests max_log_len"),
    *refused("texts of users are never logged", enable_log_outputs="false"),
    *no_effect(
        "statistics are at /metrics, not in the log", "disable_log_stats aggregate_engine_logging"
    ),
    *no_effect(
        "--log-level sets the level of all processes",
        "uvicorn_log_level disable_uvicorn_access_log log_error_stack",
    ),
    *refused("use --log-level and --log-format", log_config_file="none|"),
    *works("", "needs pagewire[otel]; also --trace-ratio and more", otlp_traces_endpoint=""),
    *refused(
        "a trace has the stages of its request; forward passes have metrics at the workers",
        collect_detailed_traces="none",
    ),
    *no_effect("/metrics shows all", "show_hidden_metrics_for_version cudagraph_metrics"),
    *refused(
        "profile a worker from outside, such as with nsys, or by pagewire admin profile",
        enable_layerwise_nvtx_tracing="false",
    ),
    ForeignName(
        name="profiler_config",
        here="profiler_dir",
        text="a JSON object or a dict with torch_profiler_dir; see docs/observability/profile.md",
        meanings={"none": "", "{}": ""},
        convert=_profiler_dir,
    ),
)
