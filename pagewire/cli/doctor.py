"""`pagewire doctor`: checks this machine, and names the cure for what is not right."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from pagewire.cli.commands import EXIT_FAILED
from pagewire.cli.help.text import is_styled
from pagewire.inspect.machine import Finding, examine
from pagewire_shared.process.flags import HintingParser

_COLOURS: Final = {"ok": "\x1b[32m", "warn": "\x1b[33m", "fail": "\x1b[31m"}
_PLAIN: Final = "\x1b[0m"


def run(name: str, argv: Sequence[str]) -> int:
    """Print the findings; return 1 when one of them keeps Pagewire from working."""
    parser = HintingParser(prog=f"pagewire {name}", description="Check this machine.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    found = examine(os.environ)
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
    else:
        has_colour = is_styled(sys.stdout, os.environ)
        print("\n".join(describe(one, has_colour=has_colour) for one in found))
    return EXIT_FAILED if any(one.state == "fail" for one in found) else 0


def describe(one: Finding, *, has_colour: bool) -> str:
    """Return a finding as one line."""
    state = f"{one.state:<4}"
    if has_colour:
        state = f"{_COLOURS[one.state]}{state}{_PLAIN}"
    cure = f"; {one.cure}" if one.cure else ""
    return f"{state}  {one.subject:<14} {one.fact}{cure}"
