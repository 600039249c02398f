"""Names of roles, and of their instances, in certificates.

A certificate of a role is for two DNS names: that of the role, by which a peer is recognised, and
LINK_HOST, for callers that take an answer from any role and check its content. One that is bound to
an instance has INSTANCE.ROLE.pagewire, too. None is looked up. The URI spiffe://CELL/ROLE/INSTANCE
beside them is for logs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_SUFFIX: Final = ".pagewire"
_INSTANCE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.IGNORECASE)

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
    """What a certificate says of its holder.

    Attributes:
        name: Its URI, or empty.
        instances: ROLE/INSTANCE that it is bound to, in small letters; empty for one that speaks
            for all of its role.
    """

    roles: frozenset[LinkRole]
    name: str = ""
    instances: frozenset[str] = frozenset()

    def __str__(self) -> str:
        roles = ", ".join(sorted(self.roles)) or "no role"
        return f"{roles} ({self.name})" if self.name else roles

    def is_instance(self, role: LinkRole, instance: str) -> bool:
        """Return whether it is bound to an instance."""
        return f"{role}/{instance.lower()}" in self.instances


def instance_uri(cell: str, role: LinkRole, instance: str) -> str:
    """Return the URI of a certificate."""
    return f"spiffe://{cell}/{role}/{instance}"


def instance_host(role: LinkRole, instance: str) -> str:
    """Return the DNS name of a certificate that is bound to an instance."""
    return f"{instance.lower()}.{role.host}"


def is_instance_name(text: str) -> bool:
    """Return whether a certificate can be bound to it: 1 to 63 letters, digits, inner hyphens."""
    return _INSTANCE.fullmatch(text) is not None


def instances_in(hosts: Iterable[str]) -> frozenset[str]:
    """Return ROLE/INSTANCE of each DNS name that binds a certificate."""
    found = set()
    for host in hosts:
        instance, _, rest = host.lower().partition(".")
        found |= {f"{role}/{instance}" for role in LinkRole if role.host == rest}
    return frozenset(found)


def identity_of(alternative_names: Iterable[bytes]) -> PeerIdentity:
    """Return the identity in the subject alternative names of a certificate, which was verified."""
    names = {one.decode(errors="replace") for one in alternative_names}
    found = frozenset(role for role in LinkRole if role.host in names)
    uris = sorted(name for name in names if name.startswith("spiffe://"))
    bound = {name for name in instances_in(names) if name.partition("/")[0] in found}
    return PeerIdentity(found, uris[0] if uris else "", frozenset(bound))
