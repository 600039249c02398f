"""Tags of frontend processes: 8 hex digits in the ids of stored responses, as in resp_<tag>_<hex>.

The first 5 digits follow from the name of the process. The others are random at each start,
because an earlier process of that name has lost the responses in its memory.
"""

import hashlib
import secrets

SLOT_DIGITS = 5
_LIFE_DIGITS = 3


def slot_of(name: str) -> str:
    """Return the first digits of the tags of all processes called `name`: 5 hex digits of BLAKE2b.

    Two of 64 names collide in one case of 500; the code that assigns names must check.
    """
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()[:SLOT_DIGITS]


def mint_tag(name: str) -> str:
    """Return a new tag of a process called `name`."""
    return slot_of(name) + secrets.token_hex(_LIFE_DIGITS)[:_LIFE_DIGITS]
