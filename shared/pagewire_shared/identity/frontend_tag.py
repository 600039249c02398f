"""Tags of frontend processes: 8 hex digits in the ids of what a process stores, as in
resp_<tag>_<hex>. The first 5 digits follow from the name of the process. The others are drawn at
each start, because what an earlier process of that name held in memory is gone.
"""

import hashlib
import secrets

SLOT_DIGITS = 5
_LIFE_DIGITS = 3


def slot_of(name: str) -> str:
    """Return how the tags of all processes called `name` begin: 5 hex digits of BLAKE2b.

    Among 64 names two that begin alike are one case in 500; whoever gives names looks.
    """
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()[:SLOT_DIGITS]


def mint_tag(name: str) -> str:
    """Return a new tag of a process called `name`."""
    return slot_of(name) + secrets.token_hex(_LIFE_DIGITS)[:_LIFE_DIGITS]
