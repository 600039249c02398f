"""Between the roles of messages and plain data."""

from collections.abc import Iterable

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import WireError
from pagewire_worker.plan.roles import WorkerRole

_TO_WIRE = {
    WorkerRole.PREFILL: wire.WORKER_ROLE_PREFILL,
    WorkerRole.DECODE: wire.WORKER_ROLE_DECODE,
}
_FROM_WIRE: dict[int, WorkerRole] = {number: role for role, number in _TO_WIRE.items()}


def roles_to_message(roles: Iterable[WorkerRole]) -> "list[wire.WorkerRole]":
    """Return the wire form."""
    return [_TO_WIRE[role] for role in roles]


def roles_from_message(message: wire.SetWorkerRoles) -> tuple[WorkerRole, ...]:
    """Return the roles in `message`. Raises WireError for none, or one that is not known."""
    unknown = [number for number in message.roles if number not in _FROM_WIRE]
    if unknown or not message.roles:
        raise WireError(f"roles: {unknown or 'none at all'}", field="roles")
    return tuple(_FROM_WIRE[number] for number in dict.fromkeys(message.roles))
