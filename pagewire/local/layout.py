"""Plans the processes of a deployment and their flags; cluster.py starts them."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from pathlib import Path

from pagewire.config import ROLE_CONFIGS, ServeConfig
from pagewire.local.devices import VARIABLE
from pagewire.local.frontend_group import memberships
from pagewire.models import ServedModel
from pagewire_shared.process.settings import ENVIRONMENT_PREFIX, flag_of


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
    schedulers = scheduler_addresses(config, folder)
    scheduler_address = "+".join(schedulers.values())
    stores = config.kvstore
    children = []
    if config.starts_store:
        children = _stores(config, folder)
        stores = tuple(f"unix:{folder / child.name}.sock" for child in children)
    for name, address in schedulers.items():
        arguments = ["--listen", address]
        if len(schedulers) > 1:
            arguments.append("--paired")
        for store in stores:
            arguments += ["--kvstore", store]
        children.append(_child(config, name, "scheduler", arguments))
    workers = _workers(config, models, folder, scheduler_address)
    # The frontend reads the tokenizer; a hub id is on disk only once its workers have fetched it.
    fetched_by = () if all(m.is_local for m in models) else tuple(w.name for w in workers)
    frontend = _frontend_arguments(models, scheduler_address, endpoints)
    if config.enable_lora:
        frontend.append("--enable-lora")
        frontend += [word for store in stores for word in ("--kvstore", store)]
        if not endpoints.host:
            frontend += ["--lora-roots", "/"]  # only this user can call
    for alias in config.served_model_name[1:]:
        frontend += ["--model-alias", f"{models[0].name}={alias}"]
    if not endpoints.host:
        # Only this user can call, so keys are not asked for.
        config = replace(config, api_key=(), api_key_file=None, cors_origin=())
        config = replace(config, weights_dir=config.weights_dir or str(folder / "weights"))
        config = replace(config, ssl_certfile="", ssl_keyfile="", ssl_ca_certs="", ssl_cert_reqs=0)
    children += [
        worker if device is None else replace(worker, environ=(*worker.environ, (VARIABLE, device)))
        for worker, device in zip_longest(workers, devices)
    ]
    for name, membership in memberships(endpoints.names, folder):
        arguments = [*frontend, *membership]
        children.append(_child(config, name, "frontend", arguments, starts_after=fetched_by))
    return _with_metrics(children, config.metrics_port, config.metrics_host or config.host)


def _stores(config: ServeConfig, folder: Path) -> list[ChildSpec]:
    """Return the KV stores; each of several ones has a folder of its own on disk."""
    children = []
    for number in range(config.num_kvstores):
        name = f"kvstore-{number}" if number else "kvstore"
        own = config
        if config.kvstore_disk_path is not None and config.num_kvstores > 1:
            own = replace(config, kvstore_disk_path=str(Path(config.kvstore_disk_path) / name))
        listen = ["--listen", f"unix:{folder / name}.sock"]
        children.append(_child(own, name, "kvstore", listen))
    return children


def scheduler_addresses(config: ServeConfig, folder: Path) -> dict[str, str]:
    """Return the address of each scheduler process by its name."""
    names = ("scheduler", "scheduler-1") if config.standby_scheduler else ("scheduler",)
    return {name: f"unix:{folder / name}.sock" for name in names}


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


def _child(
    config: ServeConfig,
    name: str,
    role: str,
    arguments: Sequence[str],
    starts_after: tuple[str, ...] = (),
) -> ChildSpec:
    """Return a process with `arguments` and the settings of `config` that its role gets."""
    words, secrets = [*arguments], []
    for item in fields(config):
        owner, value = item.metadata.get("owner"), getattr(config, item.name)
        if owner is None or not issubclass(ROLE_CONFIGS[role], owner) or value is None:
            continue
        own_name = item.metadata["owner_name"]
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(value, bool):
            words.append(flag_of(own_name if value else f"no_{own_name}"))
        elif value == "":
            continue
        elif not item.metadata["secret"]:
            words += [word for one in values for word in (flag_of(own_name), str(one))]
        elif values:
            # Other users see the flags of a process; a weak key can be guessed from its digest.
            secrets.append((ENVIRONMENT_PREFIX + own_name.upper(), ",".join(values)))
    return ChildSpec(name, role, tuple(words), starts_after, tuple(secrets))


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


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without the settings that children get as flags.

    What `serve` has no flag for, such as PAGEWIRE_STUCK_SECONDS, still reaches the role.
    """
    own = {ENVIRONMENT_PREFIX + item.name.upper() for item in fields(ServeConfig)}
    own.add(ENVIRONMENT_PREFIX + "CONFIG")
    return {key: value for key, value in environ.items() if key not in own}
