"""The command `pagewire`: finds the subcommand and runs its module.

Commands are imported only when they run, so that `pagewire --help` answers at once.
"""

import sys
from collections.abc import Sequence

from pagewire.cli.commands import COMMANDS, overview, run_command

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0, 1 after an error, 2 after misuse."""
    words = list(sys.argv[1:] if argv is None else argv)
    match words:
        case [] | ["-h" | "--help" | "help"]:
            print(overview())
            return 0
        case ["-V" | "--version" | "version"]:
            from pagewire import __version__

            print(f"pagewire {__version__}")
            return 0
        case ["help", name, *rest] if name in COMMANDS:
            return run_command(name, ["--help", *rest])
        case [name, *rest]:
            return run_command(name, rest)
    raise AssertionError("unreachable")
