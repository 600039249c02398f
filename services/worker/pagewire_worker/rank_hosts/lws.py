"""Reads the place of a pod in its group from the environment that LeaderWorkerSet gives it.

Names and meanings: https://lws.sigs.k8s.io/docs/reference/labels-annotations-and-environment-variables/
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address, parse_address
from pagewire_worker.config import MAX_RANKS, WorkerConfig
from pagewire_worker.rank_hosts.security import DEFAULT_LISTEN

LEADER: Final = "LWS_LEADER_ADDRESS"
SIZE: Final = "LWS_GROUP_SIZE"
INDEX: Final = "LWS_WORKER_INDEX"


@dataclass(frozen=True, slots=True)
class PodPlace:
    """One of the `size` pods of a group; that of index 0 is the worker."""

    leader: str
    size: int
    index: int


def pod_place(environ: Mapping[str, str]) -> PodPlace | None:
    """Return the place of this process; None without the environment. Raises StartupError."""
    if not any(environ.get(name) for name in (LEADER, SIZE, INDEX)):
        return None
    leader = environ.get(LEADER, "")
    if not leader:
        raise StartupError(f"{LEADER} is missing, and {SIZE} or {INDEX} are there", field=LEADER)
    size = _number(environ, SIZE, 1, MAX_RANKS)
    return PodPlace(leader, size, _number(environ, INDEX, 0, size - 1))


def is_followed(environ: Mapping[str, str]) -> bool:
    """Return whether the environment is that of a pod behind the first."""
    return environ.get(INDEX, "0") not in ("", "0")


def place_of(config: WorkerConfig, environ: Mapping[str, str]) -> PodPlace | None:
    """Return the place of this process where `config` takes it from the environment.

    Raises:
        StartupError: --distributed-executor-backend says env, and the environment is not there; or
            it makes no sense.
    """
    executor = config.distributed_executor_backend
    if executor not in ("auto", "env"):
        return None
    place = pod_place(environ)
    if place is None and executor == "env":
        raise StartupError(
            f"--distributed-executor-backend: env needs {LEADER}, {SIZE} and {INDEX} in the"
            " environment",
            field="distributed_executor_backend",
        )
    return place


def with_hosts(config: WorkerConfig, place: PodPlace | None) -> WorkerConfig:
    """Return the settings of the worker of a group of pods. Raises StartupError."""
    if place is None:
        if config.rank_hosts > 1 and config.distributed_executor_backend == "auto":
            raise StartupError(
                "--rank-hosts: no environment of a LeaderWorkerSet is there, and"
                " --distributed-executor-backend is not ray",
                field="rank_hosts",
            )
        return config
    if config.rank_hosts not in (1, place.size):
        raise StartupError(
            f"--rank-hosts: {config.rank_hosts}, and {SIZE} is {place.size}", field="rank_hosts"
        )
    return replace(config, distributed_executor_backend="env", rank_hosts=place.size)


def leader_address(config: WorkerConfig, place: PodPlace) -> Address:
    """Return where the first pod listens: its name, and the port of --rank-listen."""
    port = parse_address(config.rank_listen or DEFAULT_LISTEN, setting="--rank-listen").port
    return Address(host=place.leader, port=port)


def _number(environ: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = environ.get(name, "")
    if not text.isdecimal() or not least <= int(text) <= most:
        raise StartupError(
            f"{name} must be a number from {least} to {most}, got {text[:40]!r}", field=name
        )
    return int(text)
