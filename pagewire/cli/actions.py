"""The second word of commands such as `pagewire admin audit`. Runs nothing."""

import sys
from collections.abc import Mapping, Sequence

from pagewire_shared.process.flags import EXIT_MISUSE, did_you_mean


def choose_action(
    command: str, argv: Sequence[str], actions: Mapping[str, str]
) -> tuple[str, list[str]]:
    """Return the action and the words behind it; exits with 0 after --help and 2 after misuse."""
    width = max(map(len, actions))
    shown = "\n".join(f"  {name:<{width}}  {text}" for name, text in actions.items())
    usage = f"usage: pagewire {command} ACTION [...]\n\n{shown}"
    word = argv[0] if argv else ""
    if word in actions:
        return word, list(argv[1:])
    if word in ("-h", "--help"):
        print(usage)
        sys.exit(0)
    wanted = f"unknown action {word!r}{did_you_mean(word, actions)}" if word else "no action given"
    print(f"pagewire {command}: error: {wanted} (see pagewire {command} --help)", file=sys.stderr)
    sys.exit(EXIT_MISUSE)
