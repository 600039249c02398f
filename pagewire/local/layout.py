"""Plans the processes of a deployment and their flags; cluster.py starts them."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from pathlib import Path

from pagewire.config import STORE_SETTINGS, ServeConfig
from pagewire.local.devices import VARIABLE
from pagewire.local.frontend_group import memberships
from pagewire.models import ServedModel
from pagewire_shared.process.settings import ENVIRONMENT_PREFIX, flag_of

# Settings of `serve` that mean the same to a role, by the field's name.
_WORKER_SETTINGS = (
    "device",
    "dtype",
    "model_impl",
    "cpu_backend",
    "cpu_isa",
    "attention_backend",
    "linear_backend",
    "quantization",
    "load_format",
    "kv_cache_dtype",
    "max_model_len",
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_memory",
    "gpu_memory_utilization",
    "enforce_eager",
    "seed",
    "steps_in_flight",
    "kv_offload",
)
_COMMON_SETTINGS = ("log_level", "log_format")
# Of the frontend; each value is a flag of its own.
_REPEATED = ("tool_call_parser", "reasoning_parser", "tool_parser_plugin")


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process.

    Attributes:
        name: Unique in the deployment, such as "worker-0".
        role: frontend, scheduler, worker or kvstore.
        arguments: Flags.
        starts_after: Names of children that must be ready first.
        environ: Environment variables on top: what CUDA reads, and secrets, since other users see
            the flags of a process.
    """

    name: str
    role: str
    arguments: tuple[str, ...]
    starts_after: tuple[str, ...] = ()
    environ: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def stop_rank(self) -> int:
        """Frontends end first: what they hold can still be answered by the others."""
        return 0 if self.role == "frontend" else 1

    @property
    def command(self) -> list[str]:
        """The command line; -P keeps the current folder's files from hiding installed packages."""
        role = f"pagewire_{self.role}"
        return [sys.executable, "-P", "-m", role, *self.arguments, "--exit-with-parent"]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the frontends listen.

    Attributes:
        host: For HTTP and gRPC; "" for neither, only the Unix socket.
        port: HTTP port.
        grpc_port: gRPC port.
        socket: Path of a Unix socket for gRPC, used when `host` is empty.
        names: Names of the frontends in their group, one per process. A restarted one keeps its
            name, because the others got it when they started.
    """

    host: str
    port: int
    grpc_port: int
    socket: str
    names: tuple[str, ...] = ("frontend",)


def plan_children(
    config: ServeConfig,
    models: Sequence[ServedModel],
    folder: Path,
    endpoints: Endpoints,
    devices: Sequence[str | None] = (),
) -> tuple[ChildSpec, ...]:
    """Return the processes for `config`; sockets between them lie in `folder`.

    `devices` are the CUDA devices of the workers; None or none for the CPU.
    """
    scheduler_address = f"unix:{folder / 'scheduler.sock'}"
    stores = config.kvstore
    children = []
    if config.starts_store:
        stores = (f"unix:{folder / 'kvstore.sock'}",)
        children.append(_store(config, stores[0]))
    prefix = "--enable-prefix-caching" if config.enable_prefix_caching else _NO_PREFIX
    arguments = ["--listen", scheduler_address, prefix]
    for store in stores:
        arguments += ["--kvstore", store]
    for weight in config.tenant_weight:
        arguments += ["--tenant-weight", weight]
    for name in ("queue_policy", "max_num_waiting", "kv_load", "handoff"):
        value = getattr(config, name)
        if value is not None:
            arguments += ["--" + name.replace("_", "-"), str(value)]
    children.append(_child(config, "scheduler", "scheduler", arguments))
    workers = _workers(config, models, folder, scheduler_address)
    # The frontend reads the tokenizer; a hub id is on disk only once its workers have fetched it.
    fetched_by = () if all(m.is_local for m in models) else tuple(w.name for w in workers)
    frontend = _frontend_arguments(models, scheduler_address, endpoints)
    frontend += [x for n in _REPEATED for v in getattr(config, n) for x in (flag_of(n), v)]
    access: dict[str, str] = {}
    if endpoints.host:
        frontend += _access(config)
        access = _keys(config)
    children += [
        replace(worker, environ=((VARIABLE, device),)) if device is not None else worker
        for worker, device in zip_longest(workers, devices)
    ]
    for name, membership in memberships(endpoints.names, folder):
        arguments = [*frontend, *membership]
        child = _child(config, name, "frontend", arguments, starts_after=fetched_by)
        children.append(replace(child, environ=tuple(access.items())))
    return _with_metrics(children, config.metrics_port, config.metrics_host or config.host)


def _with_metrics(
    children: Sequence[ChildSpec], first_port: int | None, host: str
) -> tuple[ChildSpec, ...]:
    """Give consecutive ports to frontends, scheduler, workers and kvstore, in this order."""
    if first_port is None:
        return tuple(children)
    # The others listen on Unix sockets, which say nothing about who may scrape them.
    flags = ("--metrics-host", host, "--metrics-port")
    order = sorted(children, key=lambda child: _METRICS_ORDER.index(child.role))
    ports = {child.name: first_port + index for index, child in enumerate(order)}
    return tuple(
        replace(child, arguments=(*child.arguments, *flags, str(ports[child.name])))
        for child in children
    )


_METRICS_ORDER = ("frontend", "scheduler", "worker", "kvstore")


_NO_PREFIX = "--no-enable-prefix-caching"


def _child(
    config: ServeConfig,
    name: str,
    role: str,
    arguments: Sequence[str],
    starts_after: tuple[str, ...] = (),
) -> ChildSpec:
    common = _flags(config, _COMMON_SETTINGS)
    return ChildSpec(name, role, (*arguments, *common), starts_after)


def _store(config: ServeConfig, address: str) -> ChildSpec:
    arguments, secrets = ["--listen", address], []
    for name, role_name in STORE_SETTINGS.items():
        value = getattr(config, name)
        if value is None:
            continue
        if role_name == "redis":
            secrets.append((ENVIRONMENT_PREFIX + role_name.upper(), value))
        else:
            arguments += [flag_of(role_name), str(value)]
    return replace(_child(config, "kvstore", "kvstore", arguments), environ=tuple(secrets))


def _flags(config: ServeConfig, names: Sequence[str]) -> list[str]:
    result = []
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool):
            result.append(flag_of(name if value else f"no_{name}"))
        elif value is not None:
            result += [flag_of(name), str(value)]
    return result


def _workers(
    config: ServeConfig, models: Sequence[ServedModel], folder: Path, scheduler: str
) -> list[ChildSpec]:
    roles = config.worker_roles
    num_workers = len(roles) * len(models)
    workers = []
    for index in range(num_workers):
        model = models[index // len(roles)]
        role = roles[index % len(roles)]
        name = f"worker-{index}"
        arguments = ["--scheduler", scheduler, "--listen", f"unix:{folder / name}.sock"]
        arguments += ["--model", model.path, "--served-model-name", model.name]
        arguments += _flags(config, _WORKER_SETTINGS)
        if role is not None:
            arguments += ["--roles", role]
        if num_workers > 1:
            arguments += ["--cpu-threads", str(threads_per_worker(num_workers))]
        workers.append(_child(config, name, "worker", arguments))
    return workers


def threads_per_worker(num_workers: int) -> int:
    """Return each worker's share of the cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        num_cores = len(os.sched_getaffinity(0))
    else:
        num_cores = os.cpu_count() or 1
    return max(1, num_cores // num_workers)


def _frontend_arguments(
    models: Sequence[ServedModel], scheduler: str, endpoints: Endpoints
) -> list[str]:
    arguments = ["--scheduler", scheduler]
    for model in models:
        arguments += ["--model", f"{model.name}={model.path}"]
    if not endpoints.host:
        return [*arguments, "--no-http", "--grpc-listen", f"unix:{endpoints.socket}"]
    return [
        *arguments,
        *("--host", endpoints.host),
        *("--port", str(endpoints.port)),
        *("--grpc-port", str(endpoints.grpc_port)),
    ]


def _access(config: ServeConfig) -> list[str]:
    """Return who may call, but for the keys."""
    arguments = _flags(config, ["api_key_file"])
    for origin in config.cors_origin:
        arguments += ["--cors-origin", origin]
    return arguments


def _keys(config: ServeConfig) -> dict[str, str]:
    """Return the variable with the digests of keys: a weak key can be guessed from its digest, and
    other users see the flags of a process."""
    return {ENVIRONMENT_PREFIX + "API_KEY": ",".join(config.api_key)} if config.api_key else {}


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without the settings that children get as flags.

    What `serve` has no flag for, such as PAGEWIRE_STUCK_SECONDS, still reaches the role.
    """
    own = {ENVIRONMENT_PREFIX + item.name.upper() for item in fields(ServeConfig)}
    own.add(ENVIRONMENT_PREFIX + "CONFIG")
    return {key: value for key, value in environ.items() if key not in own}
