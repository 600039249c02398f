"""Names of the frontends of a deployment, and the flags that make them a group of peers."""

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from pagewire_shared.identity.frontend_tag import slot_of

_NAME_BYTES = 4


def mint_names(num_frontends: int) -> tuple[str, ...]:
    """Return names, of 8 hex digits, for the frontends of one deployment.

    Names are random, so that ids of an earlier deployment match no frontend.
    """
    names: dict[str, str] = {}
    while len(names) < num_frontends:
        name = secrets.token_hex(_NAME_BYTES)
        names[slot_of(name)] = name
    return tuple(names.values())


def memberships(names: Sequence[str], folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each frontend's process and the flags that make it a member of the group.

    A single frontend has no peers and shares no port.

    Args:
        names: Names of the frontends in their group.
        folder: Folder of the sockets between the frontends.
    """
    if len(names) == 1:
        yield "frontend", ["--frontend-name", names[0]]
        return
    addresses = {name: f"unix:{folder}/peer-{index}.sock" for index, name in enumerate(names)}
    for index, name in enumerate(names):
        flags = ["--shared-ports", "--frontend-name", name, "--peer-listen", addresses[name]]
        for other, address in addresses.items():
            if other != name:
                flags += ["--peer", f"{other}={address}"]
        yield f"frontend-{index}", flags
