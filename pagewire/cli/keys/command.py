"""`pagewire keys`: makes an API key, and the line for --api-key-file that recognises it."""

import secrets
import sys
from collections.abc import Sequence
from typing import Final

from pagewire.cli.commands import choose_action
from pagewire_shared.identity.api_key import parse_api_key
from pagewire_shared.identity.salted_key import salted
from pagewire_shared.process.flags import HintingParser

ACTIONS = {
    "new": "draw a key; print it, and its line for the file",
    "hash": "print the line of a key that you have, which is read from standard input",
}
_NUM_BYTES: Final = 32


def run(name: str, argv: Sequence[str]) -> int:
    """Run one action and return its exit status. Raises PagewireError."""
    action, words = choose_action(name, argv, ACTIONS)
    parser = HintingParser(prog=f"pagewire {name} {action}", description=ACTIONS[action])
    parser.add_argument("--name", default="", help="owner of the key, and tenant of its requests")
    parser.add_argument(
        "words",
        metavar="WORD",
        nargs="*",
        help="what it may, such as scope=generate model=NAME expires=2030-01-31; or admin",
    )
    options = parser.parse_args(words)
    key = sys.stdin.readline() if action == "hash" else f"sk-{secrets.token_urlsafe(_NUM_BYTES)}"
    owner = f"{options.name}=" if options.name else ""
    line = " ".join([f"{owner}{salted(key.strip())}", *options.words])
    parse_api_key(line, may_be_named=True)
    if action == "new":
        print(f"{key}\n  The client sends this key; it is shown once. Line for --api-key-file:")
    print(line)
    return 0
