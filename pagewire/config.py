"""Settings of a whole deployment on one machine: the flags of `serve` and the keywords of `LLM`.

local/layout.py passes the settings to the processes.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from pagewire.vllm_names.table import ROWS, translate
from pagewire_frontend.config import FILES_OF_ONE_MODEL, FrontendConfig, grpc_port_of
from pagewire_kvstore.config import KvStoreConfig
from pagewire_scheduler.config import SchedulerConfig
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.api_key import hidden_key
from pagewire_shared.identity.ids import parse_tenant_weight
from pagewire_shared.identity.model_files import ModelFilesConfig
from pagewire_shared.process.flags import did_you_mean
from pagewire_shared.process.settings import (
    ENVIRONMENT_PREFIX,
    LoadedSettings,
    ProcessConfig,
    flag_of,
    resolve,
    setting,
)
from pagewire_shared.process.sizes import parse_count
from pagewire_shared.sampling.checks import MAX_LOGPROBS
from pagewire_worker.config import (
    MAX_RANKS,
    WorkerConfig,
    check_hosts,
    check_ranks,
    check_sum_slices,
)
from pagewire_worker.connectors.transfer_config import has_outside_store

_logger = logging.getLogger(__name__)


def integer(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """Return a parser of whole numbers from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise StartupError(f"{text!r} is not a whole number") from None
        if not low <= value <= high:
            raise StartupError(f"{value} is not between {low} and {high}")
        return value

    return parse


def _count(text: str) -> int:
    """Return a number of at least 1, such as 8192 or 8k. Raises StartupError."""
    return _COUNT(str(parse_count(text)))


def _tenant_weight(text: str) -> str:
    """Return `text`, which goes on to the scheduler as it is. Raises StartupError."""
    parse_tenant_weight(text)
    return text


_PORT = integer(0, 65535)
_COUNT = integer(1)
_NUM_WORKERS: Final = 1
_NUM_STORES: Final = 1

ROLE_CONFIGS: Final = {
    "frontend": FrontendConfig,
    "scheduler": SchedulerConfig,
    "worker": WorkerConfig,
    "kvstore": KvStoreConfig,
}


def forwarded(owner: type[ProcessConfig], name: str, **changes: Any) -> Any:
    """Return a dataclass field for a setting of a role that `serve` passes on.

    Args:
        owner: Configuration that declares the setting; ProcessConfig for a setting of every role.
        name: Name of the setting there.
        **changes: Values that are different in `serve`: default, help, parse or choices.
    """
    item = {item.name: item for item in fields(owner)}[name]
    metadata = {**item.metadata, **changes, "owner": owner, "owner_name": name}
    default = metadata.pop("default", item.default)
    return field(default=default, metadata=metadata, repr=item.repr)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Flags of `pagewire serve`. None means that the process concerned decides."""

    model: tuple[str, ...] = setting(
        (), "Model to serve: name=path, a folder or a hub id; repeatable; the built-in one if none"
    )
    served_model_name: tuple[str, ...] = setting(
        (), "Name of the model in the API; further ones are aliases; repeatable"
    )
    tokenizer: str = forwarded(ModelFilesConfig, "tokenizer")
    tokenizer_revision: str = forwarded(ModelFilesConfig, "tokenizer_revision")
    revision: str = forwarded(ModelFilesConfig, "revision")
    download_dir: str = forwarded(ModelFilesConfig, "download_dir")
    hf_overrides: str = forwarded(ModelFilesConfig, "hf_overrides")
    skip_tokenizer_init: bool = forwarded(FrontendConfig, "skip_tokenizer_init")
    chat_template: str = forwarded(FrontendConfig, "chat_template")
    generation_config: str = forwarded(FrontendConfig, "generation_config")
    override_generation_config: str = forwarded(FrontendConfig, "override_generation_config")
    max_logprobs: int = forwarded(FrontendConfig, "max_logprobs", parse=integer(0, MAX_LOGPROBS))
    enable_lora: bool = forwarded(
        WorkerConfig, "enable_lora", help="Serve LoRA adapters of the models"
    )
    lora_modules: tuple[str, ...] = forwarded(FrontendConfig, "lora_modules")
    lora_dir: str = forwarded(FrontendConfig, "lora_dir")
    lora_roots: tuple[str, ...] = forwarded(FrontendConfig, "lora_roots")
    lora_store: str = forwarded(FrontendConfig, "lora_store")
    lora_store_bytes: int = forwarded(FrontendConfig, "lora_store_bytes")
    weights_dir: str = forwarded(FrontendConfig, "weights_dir")
    weights_dir_bytes: int = forwarded(FrontendConfig, "weights_dir_bytes")
    profiler_dir: str = forwarded(FrontendConfig, "profiler_dir")
    max_loras: int = forwarded(WorkerConfig, "max_loras", parse=_COUNT)
    max_cpu_loras: int | None = forwarded(WorkerConfig, "max_cpu_loras", parse=_COUNT)
    max_lora_rank: int = forwarded(WorkerConfig, "max_lora_rank", parse=integer(1, 256))
    host: str = setting("127.0.0.1", "Address that HTTP and gRPC listen on")
    port: int = setting(8000, "HTTP port; 0 picks one", parse=_PORT)
    grpc_port: int | None = setting(
        None, "gRPC port; that of HTTP plus one if unset, 0 picks one", parse=_PORT
    )
    frontends: int = setting(
        1, "Frontend processes on the same ports; more than one needs Linux", parse=integer(1, 64)
    )
    standby_scheduler: bool = setting(
        False, "Run a second scheduler, which takes over when the first one dies or hangs"
    )
    device: str = forwarded(WorkerConfig, "device")
    dtype: str = forwarded(WorkerConfig, "dtype")
    model_impl: str = forwarded(WorkerConfig, "model_impl")
    tensor_parallel_size: int = forwarded(
        WorkerConfig, "tensor_parallel_size", parse=integer(1, MAX_RANKS)
    )
    pipeline_parallel_size: int = forwarded(
        WorkerConfig, "pipeline_parallel_size", parse=integer(1, MAX_RANKS)
    )
    enable_expert_parallel: bool = forwarded(WorkerConfig, "enable_expert_parallel")
    distributed_executor_backend: str = forwarded(WorkerConfig, "distributed_executor_backend")
    rank_hosts: int = forwarded(WorkerConfig, "rank_hosts", parse=integer(1, MAX_RANKS))
    rank_listen: str = forwarded(WorkerConfig, "rank_listen")
    rank_key_file: str = forwarded(WorkerConfig, "rank_key_file")
    sum_slices: int = forwarded(WorkerConfig, "sum_slices", parse=integer(1, MAX_RANKS))
    cpu_backend: str = forwarded(WorkerConfig, "cpu_backend")
    cpu_isa: str = forwarded(WorkerConfig, "cpu_isa")
    attention_backend: str = forwarded(WorkerConfig, "attention_backend")
    linear_backend: str = forwarded(WorkerConfig, "linear_backend")
    quantization: str = forwarded(WorkerConfig, "quantization")
    load_format: str = forwarded(WorkerConfig, "load_format")
    max_model_len: int | None = forwarded(WorkerConfig, "max_model_len")
    block_size: int = forwarded(WorkerConfig, "block_size", parse=_COUNT)
    kv_cache_dtype: str = forwarded(WorkerConfig, "kv_cache_dtype")
    max_num_seqs: int | None = forwarded(WorkerConfig, "max_num_seqs", parse=_count)
    max_num_batched_tokens: int | None = forwarded(
        WorkerConfig, "max_num_batched_tokens", parse=_count
    )
    kv_cache_memory: int | None = forwarded(
        WorkerConfig, "kv_cache_memory", help="Memory for KV blocks per worker, such as 2GiB"
    )
    gpu_memory_utilization: float | None = forwarded(
        WorkerConfig,
        "gpu_memory_utilization",
        default=None,
        help="Share of a CUDA device's memory that each worker may use up (default: 0.9)",
    )
    enforce_eager: bool = forwarded(WorkerConfig, "enforce_eager")
    expert_metrics: bool = forwarded(WorkerConfig, "expert_metrics")
    speculative_config: str = forwarded(WorkerConfig, "speculative_config")
    worker_extension_cls: str = forwarded(WorkerConfig, "worker_extension_cls")
    enable_sleep_mode: bool = forwarded(WorkerConfig, "enable_sleep_mode")
    sleep_after_seconds: float = forwarded(WorkerConfig, "sleep_after_seconds")
    seed: int | None = forwarded(
        WorkerConfig,
        "seed",
        default=None,
        parse=integer(0, 2**64 - 1),
        help="Seed of the workers' own generators; in LLM also of prompts without one",
    )
    num_workers: int = setting(_NUM_WORKERS, "Workers per model", parse=integer(1, 64))
    prefill_workers: int | None = setting(
        None,
        "Workers per model that compute prompts only; with --decode-workers, instead of"
        " --num-workers",
        parse=integer(1, 64),
    )
    decode_workers: int | None = setting(
        None, "Workers per model that generate only; with --prefill-workers", parse=integer(1, 64)
    )
    handoff: str | None = forwarded(SchedulerConfig, "handoff", default=None)
    steps_in_flight: int = forwarded(WorkerConfig, "steps_in_flight", parse=integer(1, 8))
    enable_prefix_caching: bool = forwarded(SchedulerConfig, "enable_prefix_caching")
    kv_events_config: str = forwarded(SchedulerConfig, "kv_events_config")
    queue_policy: str | None = forwarded(SchedulerConfig, "queue_policy", default=None)
    tenant_weight: tuple[str, ...] = forwarded(
        SchedulerConfig, "tenant_weight", parse=_tenant_weight
    )
    tool_call_parser: tuple[str, ...] = forwarded(FrontendConfig, "tool_call_parser")
    reasoning_parser: tuple[str, ...] = forwarded(FrontendConfig, "reasoning_parser")
    tool_parser_plugin: tuple[str, ...] = forwarded(FrontendConfig, "tool_parser_plugin")
    max_num_waiting: int | None = forwarded(
        SchedulerConfig,
        "max_num_waiting",
        default=None,
        parse=_COUNT,
        help="Sequences that may wait; more are refused with 429",
    )
    kvstore: tuple[str, ...] = setting(
        (), "Addresses of KV stores; one is started here if none is given and blocks are offloaded"
    )
    num_kvstores: int = setting(1, "KV stores that are started here", parse=_COUNT)
    kvstore_copies: int | None = forwarded(
        SchedulerConfig, "kvstore_copies", default=None, parse=_COUNT
    )
    kvstore_memory: int | None = forwarded(
        KvStoreConfig,
        "memory_size",
        default=None,
        help="Memory of each KV store that is started here, such as 2GiB",
    )
    kvstore_disk_path: str | None = forwarded(
        KvStoreConfig,
        "disk_path",
        help="Folder for blocks on disk of the KV store that is started here; none if unset",
    )
    kvstore_disk_size: int | None = forwarded(
        KvStoreConfig,
        "disk_size",
        default=None,
        help="Most bytes of blocks in that folder, such as 100GiB",
    )
    kvstore_redis: str | None = forwarded(
        KvStoreConfig,
        "redis",
        help="URL of a Redis for the KV store that is started here; none if unset",
    )
    kvstore_adapter_bytes: int | None = forwarded(
        KvStoreConfig,
        "adapter_bytes",
        help="Most bytes of the content of adapters in the KV store that is started here; 0 for"
        " none (default: 4GiB on disk, 256MiB in memory)",
    )
    kv_offload: str = forwarded(WorkerConfig, "kv_offload")
    kv_connector: str = forwarded(WorkerConfig, "kv_connector")
    kv_transfer_config: str = forwarded(WorkerConfig, "kv_transfer_config")
    kv_key_file: str = forwarded(WorkerConfig, "kv_key_file")
    kv_load: str | None = forwarded(SchedulerConfig, "kv_load", default=None)
    api_key: tuple[str, ...] = forwarded(FrontendConfig, "api_key", parse=hidden_key)
    api_key_file: str | None = forwarded(FrontendConfig, "api_key_file", default=None)
    audit_log: str = forwarded(ProcessConfig, "audit_log")
    ssl_certfile: str = forwarded(FrontendConfig, "ssl_certfile")
    ssl_keyfile: str = forwarded(FrontendConfig, "ssl_keyfile")
    ssl_ca_certs: str = forwarded(FrontendConfig, "ssl_ca_certs")
    ssl_cert_reqs: int = forwarded(FrontendConfig, "ssl_cert_reqs", parse=integer(0, 2))
    cors_origin: tuple[str, ...] = forwarded(FrontendConfig, "cors_origin")
    protect_metrics: bool = forwarded(FrontendConfig, "protect_metrics")
    otlp_traces_endpoint: str = forwarded(FrontendConfig, "otlp_traces_endpoint")
    trace_ratio: float = forwarded(FrontendConfig, "trace_ratio")
    trace_slow_seconds: float = forwarded(FrontendConfig, "trace_slow_seconds")
    metrics_port: int | None = setting(
        None, "First of consecutive ports for /metrics, one per process", parse=_PORT
    )
    metrics_host: str = setting("", "Address of these ports; that of --host if unset")
    metrics_token_file: str = forwarded(ProcessConfig, "metrics_token_file")
    watchdog: bool = setting(True, "Replace a process that hangs; off for debuggers")
    log_level: str = forwarded(
        ProcessConfig,
        "log_level",
        help="Least level logged",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = forwarded(ProcessConfig, "log_format")

    def __post_init__(self) -> None:
        for item in fields(self):
            name = item.name
            is_of_store = item.metadata.get("owner") is KvStoreConfig
            if name == "num_kvstores":
                is_of_store = self.num_kvstores != _NUM_STORES
            if not is_of_store or getattr(self, name) is None:
                continue
            if self.kvstore:
                reason = "is for the KV store that is started here; --kvstore names others"
            elif not self.starts_store:
                reason = "no KV store is started with --kv-offload off or another --kv-connector"
            else:
                continue
            raise StartupError(f"{flag_of(name)}: {reason}", field=name)
        if self.kvstore and self._has_outside_store and not self.enable_lora:
            raise StartupError(
                "--kvstore: workers reach another store, by their --kv-connector", field="kvstore"
            )
        if self.kvstore_disk_size is not None and self.kvstore_disk_path is None:
            raise StartupError(
                "--kvstore-disk-size: needs --kvstore-disk-path", field="kvstore_disk_size"
            )
        if len(set(self.served_model_name)) < len(self.served_model_name):
            raise StartupError(
                "--served-model-name: a name is there twice", field="served_model_name"
            )
        if len(self.model) > 1:
            for name in FILES_OF_ONE_MODEL:
                if getattr(self, name):
                    raise StartupError(f"{flag_of(name)}: several models are served", field=name)
        self._check_roles()
        check_ranks(
            self.tensor_parallel_size,
            self.pipeline_parallel_size,
            self.distributed_executor_backend,
        )
        check_hosts(self.rank_hosts, self.distributed_executor_backend)
        check_sum_slices(self.sum_slices, self.tensor_parallel_size)

    def _check_roles(self) -> None:
        """Raise StartupError unless workers of one role come with those of the other."""
        counts = {"prefill_workers": "decode_workers", "decode_workers": "prefill_workers"}
        for name, other in counts.items():
            if getattr(self, name) is None:
                continue
            if getattr(self, other) is None:
                raise StartupError(f"{flag_of(name)}: needs {flag_of(other)}", field=name)
            if self.num_workers != _NUM_WORKERS:
                raise StartupError(f"{flag_of(name)}: takes the place of --num-workers", field=name)

    @property
    def ports(self) -> tuple[int, int]:
        """The ports of HTTP and gRPC; 0 for any free one. Raises StartupError for no next port."""
        return self.port, grpc_port_of(self.port, self.grpc_port)

    @property
    def first_name(self) -> str | None:
        """Name of the only model in the API; None for its own."""
        return self.served_model_name[0] if self.served_model_name else None

    @property
    def worker_roles(self) -> tuple[str | None, ...]:
        """Roles of the workers of each model, as their flag says them; None for all."""
        if self.prefill_workers is None or self.decode_workers is None:
            return (None,) * self.num_workers
        return ("prefill",) * self.prefill_workers + ("decode",) * self.decode_workers

    @property
    def starts_store(self) -> bool:
        """Whether a KV store belongs to the deployment."""
        return not self.kvstore and self.kv_offload != "off" and not self._has_outside_store

    @property
    def _has_outside_store(self) -> bool:
        return has_outside_store(self)


def config_from_keywords(
    keywords: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> LoadedSettings[ServeConfig]:
    """Return the configuration for keywords named as the flags of `serve`, and `config` for a file.

    vLLM's keywords are taken, too; those without effect are logged.

    Raises:
        TypeError: A keyword is not a flag; names the closest.
        StartupError: A value that does not parse, or cannot be had, naming the flag.
    """
    given = _translated(keywords)
    file = given.pop("config", None) or environ.get(ENVIRONMENT_PREFIX + "CONFIG")
    known = [item.name for item in fields(ServeConfig)]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, [*known, "config"]) or did_you_mean(name, ROWS)
            raise TypeError(f"unknown keyword {name!r}{hint}")
    return resolve(ServeConfig, given, environ, Path(file) if file else None, rewrite=_translated)


def _translated(given: Mapping[str, Any]) -> dict[str, Any]:
    translation = translate(given)
    for note in translation.notes:
        _logger.warning("%s", note)
    return dict(translation.values)
