"""Settings of the frontend role, and the bounds among them."""

import json
import sys
from dataclasses import dataclass, fields
from pathlib import Path

from pagewire_frontend.http.server.limits import ConnectionLimits
from pagewire_frontend.weights.inbox import WeightsInbox
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_files import ModelFilesConfig, json_object
from pagewire_shared.pair.addresses import parse_schedulers
from pagewire_shared.process.settings import setting
from pagewire_shared.process.sizes import parse_size
from pagewire_shared.rpc.address import Address, parse_address
from pagewire_shared.sampling.checks import MAX_LOGPROBS

TOOL_CALL_PARSERS = ("hermes", "llama3_json", "mistral", "pythonic", "none")
REASONING_PARSERS = ("deepseek_r1", "qwen3", "mistral", "none")
"""Names for the two flags, besides those that plug-ins bring."""

_POSITIVE = (
    "max_open_requests",
    "max_body_size",
    "max_waiting_text_bytes",
    "max_request_seconds",
    "silence_seconds",
    "lora_store_bytes",
    "weights_dir_bytes",
    "peer_seconds",
    "max_stored_response_seconds",
    "stream_journal_bytes",
    *(item.name for item in fields(ConnectionLimits) if item.name != "max_idle_per_address"),
)

FILES_OF_ONE_MODEL = ("tokenizer", "tokenizer_revision", "revision", "hf_overrides")
"""Settings that make sense for one model only."""

_NOT_NEGATIVE = (
    "max_stored_responses",
    "max_stored_response_bytes",
    "stream_retention_seconds",
    "stream_replicas",
    "max_idle_per_address",
    "drain_seconds",
    "trace_slow_seconds",
    "max_open_per_key",
)


SAMPLING_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Sampling parameters that a model may have defaults of."""


def sampling_defaults(text: str) -> str:
    """Return a JSON object of sampling defaults in canonical form. Raises StartupError."""
    canonical = json_object(text)
    for name in json.loads(canonical) if canonical else ():
        if name not in SAMPLING_DEFAULTS:
            raise StartupError(f"{name!r} is none of {', '.join(SAMPLING_DEFAULTS)}")
    return canonical


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendConfig(ModelFilesConfig):
    """All settings of `pagewire frontend`."""

    host: str = setting("127.0.0.1", "Address to listen on")
    port: int = setting(8000, "Port of the HTTP API; 0 picks a free one")
    grpc_port: int | None = setting(
        None, "Port of the gRPC API; that of HTTP plus one if unset, 0 picks a free one"
    )
    grpc_listen: str = setting("", "Where gRPC listens instead: host:port or unix:path")
    http: bool = setting(True, "Serve the HTTP API")
    scheduler: tuple[str, ...] = setting(
        (), "Scheduler of a cell: ADDRESS, or with a standby ADDRESS+ADDRESS; repeatable"
    )
    model: tuple[str, ...] = setting((), "name=path, a path or a hub id; repeatable")
    served_model_name: tuple[str, ...] = setting((), "Name of a --model given without one")
    model_alias: tuple[str, ...] = setting(
        (), "MODEL=ALIAS, a further name of a served model; repeatable"
    )
    enable_lora: bool = setting(False, "Serve LoRA adapters of the models")
    lora_modules: tuple[str, ...] = setting(
        (), "NAME=PATH of an adapter, or a JSON object with name, path, base_model_name; repeatable"
    )
    lora_dir: str = setting("", "Watched folder: every sub-folder is an adapter of its name")
    lora_roots: tuple[str, ...] = setting(
        (), "Folder below which calls may load adapters; repeatable"
    )
    lora_store: str = setting(
        "", "Folder for the content of adapters (default: one for temporary files)"
    )
    lora_store_bytes: int = setting(
        16 * 1024**3, "Most bytes of the content of adapters", parse=parse_size
    )
    lora_listen: str = setting(
        "", "Private address from which workers on other hosts read adapters"
    )
    lora_address: str = setting("", "That address as workers dial it (default: as it is)")
    kvstore: tuple[str, ...] = setting(
        (), "Address of a KV store that keeps the content of adapters, too; repeatable"
    )
    chat_template: str = setting(
        "", "File with a chat template, or its text, in place of the model's own"
    )
    generation_config: str = setting(
        "auto",
        "Sampling defaults: auto for the model's, vllm or none for none, or the folder of others",
    )
    override_generation_config: str = setting(
        "", "JSON object of sampling defaults in place of those", parse=sampling_defaults
    )
    max_logprobs: int = setting(
        MAX_LOGPROBS, "Most log-probabilities of alternatives that a request may ask for"
    )
    skip_tokenizer_init: bool = setting(
        False, "Read no tokenizer: prompts are token ids, and answers have no text"
    )
    tool_call_parser: tuple[str, ...] = setting(
        (), "Format of tool calls: NAME, or MODEL=NAME; repeatable; else the chat template tells"
    )
    reasoning_parser: tuple[str, ...] = setting(
        (), "Format of thoughts: NAME, or MODEL=NAME; repeatable; else the chat template tells"
    )
    tool_parser_plugin: tuple[str, ...] = setting(
        (), "MODULE:FACTORY or FILE.py:FACTORY of another format of tool calls; repeatable"
    )
    weights_dir: str = setting(
        "", "Folder for weights whose tensors are sent, which workers find under the same path"
    )
    weights_dir_bytes: int = setting(
        64 * 1024**3, "Most bytes of the weights of one such call", parse=parse_size
    )
    profiler_dir: str = setting(
        "", "Folder for the traces of POST /stop_profile and LLM.stop_profile"
    )
    max_open_requests: int = setting(8192, "Requests open at once; more are refused")
    max_open_per_key: int = setting(
        0,
        "Those of an API key that has no limit of its own; 0 for half of --max-open-requests where"
        " there are several keys",
    )
    max_waiting: int = setting(2048, "Requests that may wait for a worker of their model")
    max_request_seconds: float = setting(3600.0, "Deadline of requests that bring none")
    max_wait_seconds: float = setting(300.0, "How long a request waits for a worker")
    max_body_size: int = setting(
        4 * 1024 * 1024,
        "Largest HTTP body, and most characters of one text over gRPC",
        parse=parse_size,
    )
    max_waiting_text_bytes: int = setting(
        64 * 1024 * 1024,
        "Memory of texts that wait to be tokenized; a tenant has half of it",
        parse=parse_size,
    )
    max_stored_responses: int = setting(10000, "Responses kept for later; 0 keeps none")
    max_stored_response_bytes: int = setting(
        256 * 1024 * 1024, "Size of all responses kept, as JSON", parse=parse_size
    )
    max_stored_response_seconds: float = setting(86400.0, "How long a response is kept")
    stream_retention_seconds: float = setting(
        60.0, "How long a stream is kept that goes on without its client; 0 keeps none"
    )
    stream_journal_bytes: int = setting(
        64 * 1024 * 1024, "Events of all such streams; a tenant has half of it", parse=parse_size
    )
    stream_replicas: int = setting(
        1, "Other frontends that keep what a kept stream is made again from; 0 for none"
    )
    max_connections: int = setting(4096, "HTTP connections open at once; more get 503")
    max_idle_per_address: int = setting(
        512, "HTTP connections of one address that ask nothing; 0 for any number"
    )
    max_header_bytes: int = setting(
        64 * 1024, "Request line and headers of one HTTP request", parse=parse_size
    )
    max_header_count: int = setting(128, "Headers of one HTTP request")
    max_target_bytes: int = setting(8192, "Path and query of one HTTP request", parse=parse_size)
    head_seconds: float = setting(10.0, "Time until the headers of a request are complete")
    body_idle_seconds: float = setting(20.0, "Time between two pieces of a body")
    body_seconds: float = setting(300.0, "Time until a body is complete")
    keep_alive_seconds: float = setting(75.0, "Time between two requests of one connection")
    stall_seconds: float = setting(120.0, "A client that takes nothing for so long is cut")
    api_key: tuple[str, ...] = setting(
        (),
        "API key that callers need, or its digest; behind it, after blanks, what it may: admin,"
        " scope=NAME, model=NAME, expires=DATE, streams=N, ...; repeatable",
        is_secret=True,
    )
    api_key_file: str = setting(
        "", "File with one API key a line, NAME= before it where it has a name, and what it may"
    )
    protect_metrics: bool = setting(
        False, "GET /metrics on the HTTP port needs a key with scope=metrics, where there are keys"
    )
    ssl_certfile: str = setting(
        "", "Certificate of the public HTTP and gRPC ports, in PEM: they speak TLS only"
    )
    ssl_keyfile: str = setting("", "Its private key (default: in the file of the certificate)")
    ssl_ca_certs: str = setting("", "Authorities of clients' certificates, in PEM")
    ssl_cert_reqs: int = setting(
        0, "Certificates of clients: 0 for none, 1 for checked if shown (HTTP), 2 for required"
    )
    cors_origin: tuple[str, ...] = setting(
        (), "Origin whose web pages may call; * for all; repeatable"
    )
    lease_seconds: float = setting(5.0, "Wait for a lost scheduler before using another")
    silence_seconds: float = setting(5.0, "A scheduler silent for so long is dialled again")
    frontend_name: str = setting("", "Name in the group of frontends (default: drawn)")
    peer_listen: str = setting("", "Private address for the others of the group")
    peer: tuple[str, ...] = setting((), "NAME=ADDRESS of another of the group; repeatable")
    peer_seconds: float = setting(2.0, "How long another of the group may take to answer")
    shared_ports: bool = setting(False, "Let other frontends listen on the same ports (Linux)")
    vllm_metrics: bool = setting(True, "Show metrics under vLLM's names, too")
    otlp_traces_endpoint: str = setting(
        "", "Where a trace of each request goes, by OTLP; needs pagewire[otel]"
    )
    trace_ratio: float = setting(
        1.0, "Share of requests with a trace, of those whose client sends no traceparent"
    )
    trace_slow_seconds: float = setting(
        0.0, "Requests that take so long have a trace in any case, as failed ones; 0 for none"
    )
    drain_seconds: float = setting(2.0, "How long open requests may go on after SIGTERM")

    def __post_init__(self) -> None:
        for name in ("port", "grpc_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                flag = name.replace("_", "-")
                raise StartupError(f"--{flag}: ports are 0 to 65535", field=name)
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                flag = name.replace("_", "-")
                raise StartupError(f"--{flag} must be positive", field=name)
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                flag = name.replace("_", "-")
                raise StartupError(f"--{flag} must not be negative", field=name)
        if not 0 <= self.max_logprobs <= MAX_LOGPROBS:
            raise StartupError(
                f"--max-logprobs must be between 0 and {MAX_LOGPROBS}", field="max_logprobs"
            )
        if not 0 <= self.trace_ratio <= 1:
            raise StartupError("--trace-ratio must be between 0 and 1", field="trace_ratio")
        self._check_one_model()
        self._check_adapters()
        self._check_tls()
        if self.shared_ports:
            self._check_shared_ports()
        if not self.scheduler:
            raise StartupError("--scheduler is required: host:port or unix:path", field="scheduler")

    def _check_one_model(self) -> None:
        """Raise StartupError for files of one model where there are several."""
        for name in FILES_OF_ONE_MODEL:
            if getattr(self, name) and len(self.model) > 1:
                flag = name.replace("_", "-")
                raise StartupError(f"--{flag}: several models are served", field=name)

    def _check_adapters(self) -> None:
        """Raise StartupError for flags of adapters without --enable-lora."""
        for name in ("lora_modules", "lora_dir", "lora_roots", "lora_listen", "lora_address"):
            if getattr(self, name) and not self.enable_lora:
                flag = name.replace("_", "-")
                raise StartupError(f"--{flag} needs --enable-lora", field=name)
        for address in self.kvstore:
            parse_address(address, setting="--kvstore")
        if len(set(self.kvstore)) < len(self.kvstore):
            raise StartupError("--kvstore: an address is there twice", field="kvstore")

    def _check_tls(self) -> None:
        if self.ssl_cert_reqs not in (0, 1, 2):
            raise StartupError("--ssl-cert-reqs must be 0, 1 or 2", field="ssl_cert_reqs")
        if self.ssl_cert_reqs and not self.ssl_ca_certs:
            raise StartupError("--ssl-cert-reqs needs --ssl-ca-certs", field="ssl_cert_reqs")
        for name in ("ssl_keyfile", "ssl_ca_certs"):
            if getattr(self, name) and not self.ssl_certfile:
                flag = name.replace("_", "-")
                raise StartupError(f"--{flag} needs --ssl-certfile", field=name)

    def _check_shared_ports(self) -> None:
        if sys.platform != "linux":
            raise StartupError("--shared-ports needs Linux", field="shared_ports")
        if self.grpc_listen.startswith("unix:"):
            raise StartupError(
                "--shared-ports: a Unix socket has one listener", field="shared_ports"
            )

    @property
    def http_address(self) -> Address:
        """Address that HTTP listens on."""
        return Address(host=self.host, port=self.port)

    @property
    def connection_limits(self) -> ConnectionLimits:
        """Limits of one HTTP connection."""
        names = [item.name for item in fields(ConnectionLimits)]
        return ConnectionLimits(**{name: getattr(self, name) for name in names})

    @property
    def grpc_address(self) -> Address:
        """Address that gRPC listens on."""
        if self.grpc_listen:
            return parse_address(self.grpc_listen, setting="--grpc-listen")
        return Address(host=self.host, port=grpc_port_of(self.port, self.grpc_port))

    @property
    def weights_inbox(self) -> WeightsInbox | None:
        """Where tensors are written; None where none are taken."""
        if not self.weights_dir:
            return None
        return WeightsInbox(Path(self.weights_dir).expanduser(), self.weights_dir_bytes)

    @property
    def lora_address_to_listen(self) -> Address | None:
        """Address that workers read adapters from; None for no address."""
        if not self.lora_listen:
            return None
        return parse_address(self.lora_listen, setting="--lora-listen")

    @property
    def peer_address(self) -> Address | None:
        """Address that other frontends ask; None for no address."""
        if not self.peer_listen:
            return None
        return parse_address(self.peer_listen, setting="--peer-listen")

    @property
    def scheduler_addresses(self) -> list[tuple[Address, ...]]:
        """The schedulers of each cell; one flag may hold several cells, separated by commas."""
        texts = [part for text in self.scheduler for part in text.split(",") if part]
        return [parse_schedulers(text, setting="--scheduler") for text in texts]


def grpc_port_of(port: int, grpc_port: int | None) -> int:
    """Return the gRPC port beside an HTTP port: `grpc_port`, else the next one, or 0 for 0.

    Raises:
        StartupError: There is no next one.
    """
    if grpc_port is not None:
        return grpc_port
    if port == 65535:
        raise StartupError("--grpc-port is needed: no port follows 65535", field="grpc_port")
    return port + 1 if port else 0


def grpc_setting(config: FrontendConfig) -> str:
    """Return the flag that chose the gRPC address."""
    return "--grpc-listen" if config.grpc_listen else "--grpc-port"
