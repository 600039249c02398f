"""Puts the flags of the table on a parser, hidden: their values are then known by name."""

import argparse
import json
from collections.abc import Sequence
from typing import Any, Final

from pagewire.vllm_names.other_programs import FLAG_HINTS
from pagewire.vllm_names.table import LISTS, ROWS, SHORT_FLAGS, is_switch
from pagewire_shared.names.foreign_name import ForeignName, RefusedNameError, meaning_of
from pagewire_shared.process.settings import flag_of, normalise_flags

OWN_LISTS: Final = ("--served-model-name", "--api-key", "--lora-modules")
"""Repeatable flags here that take several values in vLLM."""


class _Hint(argparse.Action):
    """Ends with the line of a flag of another program."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string}: {self.const}")


def add_names(parser: argparse.ArgumentParser) -> None:
    """Add every flag of vLLM, Ollama and llama.cpp that `parser` does not have."""
    known = parser._option_string_actions
    for row in ROWS.values():
        shorts = [flag for flag, name in SHORT_FLAGS.items() if name == row.name]
        flags = [flag for flag in (flag_of(row.name), *shorts) if flag not in known]
        if row.here == row.name:
            _take_meanings(known.get(flag_of(row.name)), row)
        if not flags:
            continue
        options: dict[str, Any] = {
            "dest": row.name,
            "default": argparse.SUPPRESS,
            "help": argparse.SUPPRESS,
        }
        if is_switch(row) and flags[0].startswith("--"):
            options["action"] = argparse.BooleanOptionalAction
        elif row.name in LISTS:
            options["nargs"] = "*"
        parser.add_argument(*flags, **options)
    for flag, hint in FLAG_HINTS.items():
        if flag not in known:
            parser.add_argument(
                flag,
                action=_Hint,
                const=hint,
                nargs="?",
                dest=argparse.SUPPRESS,
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )


def _take_meanings(action: argparse.Action | None, row: ForeignName) -> None:
    """Let an option with choices take vLLM's words for them, and refuse others with the row."""
    if action is None or not action.choices:
        return
    choices = action.choices

    def mean(text: str) -> str:
        try:
            value = meaning_of(row, text, text).value
        except RefusedNameError:
            raise argparse.ArgumentTypeError(f"{text!r}: {row.text}") from None
        if str(value) not in choices and row.text:
            raise argparse.ArgumentTypeError(f"{text!r} is not served: {row.text}")
        return str(value)

    action.type = mean


def prepared(argv: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Return `argv` in forms that `parser` reads.

    - `--switch true` and `--switch=false` become `--switch` and `--no-switch`.
    - `--name.key value` becomes `--name '{"key": value}'`; several of one name are joined.
    - `--served-model-name a b` becomes one flag for each, where MODEL is given apart.
    """
    words, objects = _without_dots(argv)
    words = normalise_flags(words)
    result: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        name, equals, value = word.partition("=")
        following = words[position] if position < len(words) else ""
        if _is_switch(name, parser) and (equals or following.lower() in ("true", "false")):
            position += not equals
            is_on = (value or following).lower() != "false"
            result.append(name if is_on else f"--no-{name[2:]}")
        elif name in OWN_LISTS and not equals and _has_model(words, parser):
            while position < len(words) and not words[position].startswith("-"):
                result += [name, words[position]]
                position += 1
        else:
            result.append(word)
    for flag, content in objects.items():
        result += [flag, json.dumps(content)]
    return result


def _is_switch(flag: str, parser: argparse.ArgumentParser) -> bool:
    action = parser._option_string_actions.get(flag)
    return isinstance(action, argparse.BooleanOptionalAction)


def _has_model(words: Sequence[str], parser: argparse.ArgumentParser) -> bool:
    """Return whether no value of a list can be a positional argument."""
    if any(action.dest == "PROMPT" for action in parser._actions):
        return False
    named = any(word == "--model" or word.startswith("--model=") for word in words)
    return named or not words[0].startswith("-")


def _without_dots(argv: Sequence[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return the other words, and flag to object for `--name.key value`."""
    words: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        flag, dot, path = name.partition(".")
        if not (flag.startswith("--") and dot and path):
            words.append(word)
            continue
        place = objects.setdefault(flag.replace("_", "-"), {})
        *parents, last = path.split(".")
        for parent in parents:
            inner = place.setdefault(parent, {})
            place = inner if isinstance(inner, dict) else {}
        place[last] = _parsed(value if equals else next(rest, ""))
    return words, objects


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
