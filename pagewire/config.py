"""Settings of a whole deployment on one machine: the flags of `serve` and the keywords of `LLM`.

local/layout.py passes the settings to the processes.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.api_key import hidden_key
from pagewire_shared.identity.ids import parse_tenant_weight
from pagewire_shared.process.flags import did_you_mean
from pagewire_shared.process.settings import (
    ENVIRONMENT_PREFIX,
    LoadedSettings,
    flag_of,
    resolve,
    setting,
)
from pagewire_shared.process.sizes import parse_size


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


def _tenant_weight(text: str) -> str:
    """Return `text`, which goes on to the scheduler as it is. Raises StartupError."""
    parse_tenant_weight(text)
    return text


_PORT = integer(0, 65535)
_COUNT = integer(1)
_NUM_WORKERS: Final = 1

STORE_SETTINGS: Final = {
    "kvstore_memory": "memory_size",
    "kvstore_disk_path": "disk_path",
    "kvstore_disk_size": "disk_size",
    "kvstore_redis": "redis",
}
"""Settings of the KV store that is started here -> what its role calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Flags of `pagewire serve`. None means that the process concerned decides."""

    model: tuple[str, ...] = setting(
        (), "Model to serve: name=path, a folder or a hub id; repeatable; the built-in one if none"
    )
    served_model_name: str | None = setting(None, "Name of the model in the API")
    host: str = setting("127.0.0.1", "Address that HTTP and gRPC listen on")
    port: int = setting(8000, "HTTP port; 0 picks one", parse=_PORT)
    grpc_port: int = setting(8001, "gRPC port; 0 picks one", parse=_PORT)
    frontends: int = setting(
        1, "Frontend processes on the same ports; more than one needs Linux", parse=integer(1, 64)
    )
    device: str = setting("auto", "Where the model runs", choices=("auto", "cpu", "cuda"))
    dtype: str = setting(
        "auto", "Type of weights and KV", choices=("auto", "float32", "bfloat16", "float16")
    )
    model_impl: str = setting(
        "auto",
        "What computes a model: native where there is a decoder for it, else transformers",
        choices=("auto", "native", "transformers"),
    )
    cpu_backend: str = setting(
        "auto",
        "What computes on CPUs: fused for kernels that were compiled on installation, or torch",
        choices=("auto", "fused", "torch"),
    )
    cpu_isa: str = setting(
        "auto",
        "Instruction set of the kernels for CPUs; auto measures which is the fastest",
        choices=("auto", "avx512bf16", "avx512", "avx2"),
    )
    attention_backend: str = setting(
        "auto",
        "Implementation of attention; triton needs CUDA, the others are torch's",
        choices=("auto", "reference", "sdpa", "triton"),
    )
    linear_backend: str = setting(
        "auto",
        "Implementation of linear layers; fixed-tile with --attention-backend triton gives tokens"
        " on CUDA that do not depend on the batch",
        choices=("auto", "torch", "packed", "fixed-tile"),
    )
    quantization: str = setting(
        "none",
        "Type that weights are turned into while they are loaded: int8 and int4 to compute on CPUs,"
        " fp8 on CUDA",
        choices=("none", "int8", "int4", "fp8"),
    )
    load_format: str = setting(
        "auto",
        "Where weights come from: auto for the checkpoint, dummy for random ones of its shape",
        choices=("auto", "dummy"),
    )
    max_model_len: int | None = setting(
        None, "Longest sequence in tokens (default: the model's)", parse=_COUNT
    )
    block_size: int = setting(16, "Tokens per KV block", parse=_COUNT)
    kv_cache_dtype: str = setting(
        "auto",
        "Type of the KV cache: the weights', or 8-bit floats with --attention-backend triton",
        choices=("auto", "fp8_e4m3"),
    )
    max_num_seqs: int | None = setting(None, "Most sequences in one step", parse=_COUNT)
    max_num_batched_tokens: int | None = setting(None, "Most tokens in one step", parse=_COUNT)
    kv_cache_memory: int | None = setting(
        None, "Memory for KV blocks per worker, such as 2GiB", parse=parse_size
    )
    gpu_memory_utilization: float | None = setting(
        None, "Share of a CUDA device's memory that each worker may use up (default: 0.9)"
    )
    enforce_eager: bool = setting(
        False, "Capture nothing in CUDA graphs: slower, and less memory is taken"
    )
    seed: int | None = setting(
        None,
        "Seed of the workers' own generators; in LLM also of prompts without one",
        parse=integer(0, 2**64 - 1),
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
    handoff: str | None = setting(
        None,
        "When prompts are computed on another worker than their tokens: where that pays (auto),"
        " wherever a pair of workers can, or never",
        choices=("auto", "always", "never"),
    )
    steps_in_flight: int = setting(2, "Steps planned ahead of the worker", parse=integer(1, 8))
    enable_prefix_caching: bool = setting(True, "Reuse KV blocks of equal prefixes")
    queue_policy: str | None = setting(
        None, "Who is served first: fair between tenants, or fcfs", choices=("fcfs", "fair")
    )
    tenant_weight: tuple[str, ...] = setting(
        (),
        "TENANT=WEIGHT, its share under the fair policy; repeatable",
        parse=_tenant_weight,
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
    max_num_waiting: int | None = setting(
        None, "Sequences that may wait; more are refused with 429", parse=_COUNT
    )
    kvstore: tuple[str, ...] = setting(
        (), "Addresses of KV stores; one is started here if none is given and blocks are offloaded"
    )
    kvstore_memory: int | None = setting(
        None, "Memory of the KV store that is started here, such as 2GiB", parse=parse_size
    )
    kvstore_disk_path: str | None = setting(
        None, "Folder for blocks on disk of the KV store that is started here; none if unset"
    )
    kvstore_disk_size: int | None = setting(
        None, "Most bytes of blocks in that folder, such as 100GiB", parse=parse_size
    )
    kvstore_redis: str | None = setting(
        None, "URL of a Redis for the KV store that is started here; none if unset", is_secret=True
    )
    kv_offload: str = setting(
        "writethrough",
        "When KV blocks go to a KV store: when they are full, when they are evicted, or never",
        choices=("writethrough", "writeback", "off"),
    )
    kv_load: str | None = setting(
        None,
        "When blocks come from KV stores: where that is sooner than computing them (auto), whenever"
        " a store has them, or never",
        choices=("auto", "always", "never"),
    )
    api_key: tuple[str, ...] = setting(
        (),
        "API key that callers need, or its sha256:HEX; behind it, after a blank, what it may:"
        " admin, streams=N, requests-per-minute=N, tokens-per-minute=N; repeatable",
        parse=hidden_key,
        is_secret=True,
    )
    api_key_file: str | None = setting(
        None, "File with one API key a line, NAME= before it where it has a name, and what it may"
    )
    cors_origin: tuple[str, ...] = setting(
        (), "Origin whose web pages may call; * for all; repeatable"
    )
    metrics_port: int | None = setting(
        None, "First of consecutive ports for /metrics, one per process", parse=_PORT
    )
    metrics_host: str = setting("", "Address of these ports; that of --host if unset")
    watchdog: bool = setting(True, "Replace a process that hangs; off for debuggers")
    log_level: str = setting(
        "info", "Least level logged", choices=("debug", "info", "warning", "error")
    )
    log_format: str = setting("text", "Form of log lines", choices=("text", "json"))

    def __post_init__(self) -> None:
        for name in STORE_SETTINGS:
            if getattr(self, name) is None:
                continue
            if self.kvstore:
                reason = "is for the KV store that is started here; --kvstore names others"
            elif not self.starts_store:
                reason = "no KV store is started with --kv-offload off"
            else:
                continue
            raise StartupError(f"{flag_of(name)}: {reason}", field=name)
        if self.kvstore_disk_size is not None and self.kvstore_disk_path is None:
            raise StartupError(
                "--kvstore-disk-size: needs --kvstore-disk-path", field="kvstore_disk_size"
            )
        self._check_roles()

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
    def worker_roles(self) -> tuple[str | None, ...]:
        """Roles of the workers of each model, as their flag says them; None for all."""
        if self.prefill_workers is None or self.decode_workers is None:
            return (None,) * self.num_workers
        return ("prefill",) * self.prefill_workers + ("decode",) * self.decode_workers

    @property
    def starts_store(self) -> bool:
        """Whether a KV store belongs to the deployment."""
        return not self.kvstore and self.kv_offload != "off"


def config_from_keywords(
    keywords: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> LoadedSettings[ServeConfig]:
    """Return the configuration for keywords named as the flags of `serve`, and `config` for a file.

    Raises:
        TypeError: A keyword is no flag; names the closest.
        StartupError: A value that does not parse, naming the flag.
    """
    given = dict(keywords)
    file = given.pop("config", None) or environ.get(ENVIRONMENT_PREFIX + "CONFIG")
    known = [item.name for item in fields(ServeConfig)]
    for name in given:
        if name not in known:
            raise TypeError(f"unknown keyword {name!r}{did_you_mean(name, [*known, 'config'])}")
    return resolve(ServeConfig, given, environ, Path(file) if file else None)
