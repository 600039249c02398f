"""Help in groups: `--help` shows the common flags, `--help=all` every flag."""

import argparse
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from pagewire.cli.help.groups import COMMON, GROUPS, OTHER, SERVING_ONLY, group_of
from pagewire_shared.process.flags import HintingParser

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_WIDTH = 100
_INDENT = 30


class GroupedParser(HintingParser):
    """A parser with short usage, and help in groups of settings."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(add_help=False, **kwargs)
        self.add_argument(
            *("-h", "--help"),
            action=_Help,
            nargs="?",
            const="common",
            default=argparse.SUPPRESS,
            metavar="all",
            help="show the common flags; --help=all shows every flag",
        )


class _Help(argparse.Action):
    """Prints help and ends the program."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        print(help_text(parser, has_all=values == "all", style=is_styled(sys.stdout, os.environ)))
        parser.exit()


def is_styled(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether text on the stream may be bold: on a terminal that can, unless NO_COLOR."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def help_text(parser: argparse.ArgumentParser, *, has_all: bool, style: bool = False) -> str:
    """Return the help of a parser; without `has_all` only that of the common flags."""
    grouped = _grouped(parser)
    if not has_all:
        grouped = _common(grouped)
    positionals = [action for action in parser._actions if not action.option_strings]
    words = "".join(f" [{action.metavar or action.dest}]" for action in positionals)
    lines = [f"usage: {parser.prog}{words} [--flag VALUE ...]", "", parser.description or ""]
    if positionals:
        grouped = {"arguments": positionals, **grouped}
    for title, actions in grouped.items():
        head = f"{_BOLD}{title}{_PLAIN}" if style else title
        lines += ["", f"{head}:", *(line for action in actions for line in _described(action))]
    if not has_all:
        lines += ["", f"{parser.prog} --help=all shows every flag."]
    return "\n".join(lines)


def _grouped(parser: argparse.ArgumentParser) -> dict[str, list[argparse.Action]]:
    """Return the flags that are shown, by group in the order of GROUPS."""
    grouped: dict[str, list[argparse.Action]] = {title: [] for title in (*GROUPS, OTHER)}
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            grouped[group_of(action.dest)].append(action)
    return {title: actions for title, actions in grouped.items() if actions}


def _common(grouped: dict[str, list[argparse.Action]]) -> dict[str, list[argparse.Action]]:
    left_out = SERVING_ONLY if "sampling" in grouped else frozenset()
    short = {
        title: [action for action in actions if action.dest in COMMON or title == OTHER]
        for title, actions in grouped.items()
        if title not in left_out
    }
    return {title: actions for title, actions in short.items() if actions}


def _described(action: argparse.Action) -> Iterable[str]:
    """Return the lines of one flag or argument."""
    name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    if action.option_strings and action.nargs != 0:
        value = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.metavar
        if value is not None:
            name += f" {value}"
    wrapped = textwrap.wrap(action.help or "", _WIDTH - _INDENT)
    name = f"  {name}"
    if len(name) > _INDENT - 2:
        yield name
        name = ""
    yield f"{name:<{_INDENT}}{wrapped[0] if wrapped else ''}".rstrip()
    yield from (" " * _INDENT + line for line in wrapped[1:])
