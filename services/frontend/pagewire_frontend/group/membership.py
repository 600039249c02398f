"""Parses the name of a frontend process and its peers, and mints the tag of this process."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.frontend_tag import mint_tag, slot_of
from pagewire_shared.rpc.address import Address, parse_address

# As a label of DNS, so that a pod's name will do.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_NAME_BYTES = 4


@dataclass(frozen=True, slots=True)
class Membership:
    """One process of a group.

    Attributes:
        name: Stays when the process is started again.
        peers: Addresses of the other processes, by their names.
        tag: Names this process in the ids of its responses; an earlier process of this name has
            another tag.
    """

    name: str
    tag: str
    peers: Mapping[str, Address] = field(default_factory=dict)


def parse_membership(name: str, peers: Sequence[str]) -> Membership:
    """Return the membership of a process.

    Args:
        name: As --frontend-name; drawn when empty.
        peers: NAME=ADDRESS each, as --peer. All of a group may be given the same list: an entry of
            its own name is left out.

    Raises:
        StartupError: A name is malformed or occurs twice, or an address is malformed.
    """
    own = name or secrets.token_hex(_NAME_BYTES)
    _check_name(own, "--frontend-name")
    others: dict[str, Address] = {}
    names: set[str] = set()
    for text in peers:
        other, separator, address = text.partition("=")
        if not separator:
            raise StartupError(f"--peer: {text!r} is not NAME=ADDRESS", field="peer")
        _check_name(other, "--peer")
        if other in names:
            raise StartupError(f"--peer: two frontends are called {other!r}", field="peer")
        names.add(other)
        listens = parse_address(address, setting="--peer")
        if other == own:
            continue
        if slot_of(other) in map(slot_of, (own, *others)):
            # The owner of an id would be ambiguous.
            raise StartupError(f"--peer: give {other!r} another name", field="peer")
        others[other] = listens
    return Membership(own, mint_tag(own), others)


def _check_name(name: str, setting: str) -> None:
    if not _NAME.fullmatch(name):
        raise StartupError(
            f"{setting}: {name!r} is no name; it takes 1 to 63 letters, digits and inner hyphens",
            field=setting,
        )
