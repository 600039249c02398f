"""An argparse parser that suggests the closest flag for an unknown one."""

import argparse
import difflib
import json
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

PRINT_WORDS = "--print-words"
"""Asks a parser for its flags; shell completion is made from them."""

EXIT_MISUSE = 2
"""Exit status after a wrong command line, as usual."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" for the closest of `known`, or "" when none is close."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


class HintingParser(argparse.ArgumentParser):
    """Refuses an unknown flag with the closest known one, in one line and with exit status 2."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse, or exit with 2 and name the first unknown word.

        The single word PRINT_WORDS prints flags with their choices as JSON, and exits with 0.
        """
        if args is not None and list(args) == [PRINT_WORDS]:
            print(json.dumps(self.words))
            self.exit()
        parsed, unknown = self.parse_known_args(args, namespace or argparse.Namespace())
        if unknown:
            flag = unknown[0].partition("=")[0]
            if flag.startswith("-"):
                self.error(f"unknown flag {flag}{self._closest(flag)}")
            self.error(f"unexpected argument {unknown[0]!r}")
        return parsed

    @property
    def words(self) -> dict[str, list[str] | None]:
        """Flag -> its choices; an empty list after which no value comes, None for any value."""
        return {
            flag: []
            if action.nargs == 0
            else [str(choice) for choice in action.choices or ()] or None
            for action in self._actions
            if action.help != argparse.SUPPRESS
            for flag in action.option_strings
        }

    def _closest(self, flag: str) -> str:
        """Return the hint to the closest flag; hidden ones, other names, only if no other is."""
        known = self._option_string_actions
        shown = [one for one, action in known.items() if action.help != argparse.SUPPRESS]
        return did_you_mean(flag, shown) or did_you_mean(flag, known)

    def error(self, message: str) -> NoReturn:
        """Exit with 2 and one line instead of the whole usage."""
        self.exit(EXIT_MISUSE, f"{self.prog}: error: {message} (see {self.prog} --help)\n")
