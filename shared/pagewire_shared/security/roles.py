"""Names of roles in certificates.

A certificate of a role is for two DNS names: that of the role, by which a peer is recognised, and
LINK_HOST, for callers that take an answer from any role and check its content. Neither is looked
up. The URI spiffe://CELL/ROLE/INSTANCE beside them is for logs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_SUFFIX: Final = ".pagewire"

LINK_HOST: Final = f"link{_SUFFIX}"
"""Name that every role has."""


class LinkRole(StrEnum):
    """Who may hold a certificate."""

    FRONTEND = "frontend"
    SCHEDULER = "scheduler"
    WORKER = "worker"
    KVSTORE = "kvstore"
    OPERATOR = "operator"

    @property
    def host(self) -> str:
        """The DNS name of the role."""
        return f"{self.value}{_SUFFIX}"


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """What a certificate says of its holder; `name` is its URI, or empty."""

    roles: frozenset[LinkRole]
    name: str = ""

    def __str__(self) -> str:
        roles = ", ".join(sorted(self.roles)) or "no role"
        return f"{roles} ({self.name})" if self.name else roles


def instance_uri(cell: str, role: LinkRole, instance: str) -> str:
    """Return the URI of a certificate."""
    return f"spiffe://{cell}/{role}/{instance}"


def identity_of(alternative_names: Iterable[bytes]) -> PeerIdentity:
    """Return the identity in the subject alternative names of a certificate, which was verified."""
    names = {one.decode(errors="replace") for one in alternative_names}
    found = frozenset(role for role in LinkRole if role.host in names)
    uris = sorted(name for name in names if name.startswith("spiffe://"))
    return PeerIdentity(found, uris[0] if uris else "")
