"""Holds the ids that processes say of themselves against the instances in their certificates."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from pagewire_shared.errors import ForbiddenError
from pagewire_shared.security import audit
from pagewire_shared.security.roles import LinkRole, PeerIdentity

_MAX_IDS: Final = 10_000


class IdentityClaims:
    """The instance that each id of a process first came with.

    An id stands for requests or blocks that are kept for its process: no other one comes with
    it. Certificates that are bound to no instance, and links without TLS, count as one instance.
    """

    def __init__(self) -> None:
        self._owners: OrderedDict[bytes, frozenset[str]] = OrderedDict()

    def check(self, peer: PeerIdentity, process_id: bytes) -> None:
        """Take the id of a process that attaches. Raises ForbiddenError if it is another's."""
        owner = self._owners.setdefault(process_id, peer.instances)
        if owner != peer.instances:
            _refuse(peer, f"the id {process_id.hex()[:8]} is that of another instance")
        self._owners.move_to_end(process_id)
        while len(self._owners) > _MAX_IDS:
            self._owners.popitem(last=False)


def split_instance(endpoint: str) -> tuple[str, str]:
    """Return the instance in `INSTANCE@HOST:PORT`, empty without one, and the address."""
    instance, separator, address = endpoint.rpartition("@")
    if not separator or endpoint.startswith("unix:"):
        return "", endpoint
    return instance, address


def check_endpoints(peer: PeerIdentity, role: LinkRole, endpoints: Iterable[str]) -> None:
    """Raise ForbiddenError if a peer names an endpoint of an instance that it is not."""
    for endpoint in endpoints:
        instance, _ = split_instance(endpoint)
        if instance and not peer.is_instance(role, instance):
            _refuse(peer, f"its endpoint is that of {role}/{instance[:63]}")


def _refuse(peer: PeerIdentity, reason: str) -> None:
    audit.note(audit.REFUSED, what="identity", who=str(peer), reason=reason)
    raise ForbiddenError(f"{peer} is not who it says: {reason}")
