"""A cell whose processes are started one by one, each wherever a test wants it: in a namespace, or
from the code of another version. Nobody restarts them but the test."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.processes.role_processes import Place, RoleProcess

READY_SECONDS = 90.0
MODEL = "model"
HTTP_PORT = 8000

WORKER_FLAGS = {
    "--dtype": "float32",
    "--max-num-seqs": "32",
    "--max-num-batched-tokens": "128",
    "--kv-cache-memory": "16MiB",
    "--cpu-threads": "1",
}
"""Of every worker, unless a test gives others."""

KINDS = {"prefill": ("--roles", "prefill"), "decode": ("--roles", "decode"), "worker": ()}
"""Kinds of workers -> what makes them so."""

FindPlace = Callable[[str, str], Place]
"""From a member's name and role to its place; asked once for each."""


@dataclass(frozen=True, slots=True)
class RoleCell:
    """A running cell.

    Attributes:
        members: Its processes by name: "frontend", "scheduler", "kvstore" where there is one, and
            workers by kind and number, such as "prefill-0".
        grpc_address: Of the public gRPC API.
        http_url: Base URL of the HTTP API, without /v1; empty where the frontend listens on a Unix
            socket.
        model: Name of the model.
    """

    members: dict[str, RoleProcess]
    grpc_address: str
    http_url: str
    model: str = MODEL

    @property
    def log(self) -> str:
        """What the processes wrote."""
        return "\n".join(f"{name}: {one.log}" for name, one in self.members.items() if one.log)


def worker_names(num_prefill: int = 0, num_decode: int = 0, num_workers: int = 0) -> list[str]:
    """Return names of workers that only prefill, that only decode, and that do everything."""
    counts = {"prefill": num_prefill, "decode": num_decode, "worker": num_workers}
    return [f"{kind}-{number}" for kind, count in counts.items() for number in range(count)]


@contextmanager
def role_cell(
    checkpoint: Path,
    workers: Sequence[str],
    find_place: FindPlace,
    *,
    has_store: bool = True,
    flags: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[RoleCell]:
    """Start a cell and wait until all of it is ready; nothing of it is left afterwards.

    Args:
        checkpoint: The model's folder.
        workers: Names as of `worker_names`.
        find_place: Where each process runs.
        has_store: Whether there is a KV store.
        flags: Further flags by role ("worker" is every worker), by kind ("prefill") or by name
            ("prefill-0"); later ones of the same flag win, in this order.
    """
    more = flags or {}
    names = ["scheduler", "frontend", *workers] + ["kvstore"] * has_store
    places = {name: find_place(name, _role_of(name)) for name in names}
    addresses = {name: place.address for name, place in places.items()}
    with contextlib.ExitStack() as stack:
        members: dict[str, RoleProcess] = {}
        for name, place in places.items():
            role, kind = _role_of(name), _kind_of(name)
            wanted = [*_flags(name, addresses, checkpoint), "--log-level", "warning"]
            if not place.address.startswith("unix:"):
                wanted.append("--insecure")  # namespaces are reached by this machine only
            for key in dict.fromkeys((role, kind, name)):
                wanted += more.get(key, ())
            members[name] = stack.enter_context(RoleProcess(name, role, place, wanted))
        for member in members.values():
            member.wait_ready(READY_SECONDS)
        host = addresses["frontend"].rpartition(":")[0]
        is_local = host == "unix"
        url = "" if is_local else f"http://{host}:{HTTP_PORT}"
        yield RoleCell(members, addresses["frontend"], url)


def _kind_of(name: str) -> str:
    return name.partition("-")[0]


def _role_of(name: str) -> str:
    kind = _kind_of(name)
    return "worker" if kind in KINDS else kind


def _flags(name: str, addresses: Mapping[str, str], checkpoint: Path) -> list[str]:
    address = addresses[name]
    dialed = ["--scheduler", addresses["scheduler"]]
    match _role_of(name):
        case "kvstore":
            return ["--listen", address, "--memory-size", "64MiB"]
        case "scheduler":
            store = ["--kvstore", addresses["kvstore"]] if "kvstore" in addresses else []
            return ["--listen", address, *store]
        case "frontend":
            return [*dialed, "--model", f"{MODEL}={checkpoint}", *_public(address)]
        case _:
            common = [part for pair in WORKER_FLAGS.items() for part in pair]
            model = ["--model", str(checkpoint), "--served-model-name", MODEL]
            return [*dialed, "--listen", address, *model, *common, *KINDS[_kind_of(name)]]


def _public(address: str) -> list[str]:
    host, _, port = address.rpartition(":")
    if host == "unix":
        return ["--no-http", "--grpc-listen", address]
    return ["--host", host, "--port", str(HTTP_PORT), "--grpc-port", port]
