"""The frontends of a deployment as a group: what each is called, and how each is told of the
others. Pure but for the dice of the names.
"""

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from pagewire_shared.identity.frontend_tag import slot_of

_NAME_BYTES = 4


def mint_names(num_frontends: int) -> tuple[str, ...]:
    """Return names, of 8 hex digits, for the frontends of one deployment.

    They are drawn, so that an id that was handed out by an earlier deployment names nobody.
    """
    names: dict[str, str] = {}
    while len(names) < num_frontends:
        name = secrets.token_hex(_NAME_BYTES)
        names[slot_of(name)] = name
    return tuple(names.values())


def memberships(names: Sequence[str], folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each frontend's process and the flags that make it one of the group.

    A single frontend has no peers, nor a port to share.

    Args:
        names: Of the frontends in their group.
        folder: Where the sockets between them lie.
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
