"""Reads the addresses of the schedulers of one cell: one, or two joined with a plus."""

import re
from typing import Final

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address, parse_address

MAX_SCHEDULERS: Final = 2

# A plus in the path of a Unix socket is a character like others, unless an address follows it.
_JOINT: Final = re.compile(r"\+(?=unix:|[^/+]+:\d+(?:\+|$))")


def parse_schedulers(text: str, *, setting: str) -> tuple[Address, ...]:
    """Return the addresses in `text`: ADDRESS, or ADDRESS+ADDRESS of a cell with a standby.

    Raises:
        StartupError: An address is wrong or there twice, or there are more than two; names
            `setting`.
    """
    addresses = tuple(parse_address(one, setting=setting) for one in _JOINT.split(text))
    if len(addresses) > MAX_SCHEDULERS:
        raise StartupError(f"{setting}: a cell has at most two schedulers", field=setting)
    if len(set(addresses)) < len(addresses):
        raise StartupError(f"{setting}: {addresses[0]} is there twice", field=setting)
    return addresses
