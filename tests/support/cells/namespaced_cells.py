"""A cell each of whose processes is alone in a network namespace, as on a machine of its own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.cells.role_cells import RoleCell, role_cell, worker_names
from support.processes.namespaces import Network
from support.processes.role_processes import Place

PORTS = {"frontend": 8001, "scheduler": 8100, "kvstore": 8200, "worker": 8300}


@contextmanager
def namespaced_cell(
    network: Network,
    checkpoint: Path,
    *,
    num_prefill: int = 0,
    num_decode: int = 0,
    num_workers: int = 0,
    has_store: bool = True,
    flags: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[RoleCell]:
    """Start frontend, scheduler, workers and KV store, each in a namespace of `network` that is
    called as it is.

    Args:
        network: New.
        checkpoint: The model's folder.
        num_prefill, num_decode, num_workers: Workers that only prefill, that only decode, and that
            do everything.
        has_store: Whether there is a KV store.
        flags: Further flags by role, kind or name, as for `role_cell`.
    """

    def find_place(name: str, role: str) -> Place:
        space = network.add(name)
        return Place(f"{space.host}:{PORTS[role]}", prefix=space.command)

    workers = worker_names(num_prefill, num_decode, num_workers)
    with role_cell(checkpoint, workers, find_place, has_store=has_store, flags=flags) as cell:
        yield cell
