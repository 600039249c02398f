"""Configuration of a subcommand from its flags, the environment and a file."""

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pagewire.cli.environment import warn_of_unknown
from pagewire.cli.help.text import GroupedParser
from pagewire.config import ServeConfig
from pagewire.vllm_names.arguments import add_names, prepared
from pagewire.vllm_names.table import translate
from pagewire_shared.errors import StartupError
from pagewire_shared.process.flags import HintingParser
from pagewire_shared.process.settings import (
    ENVIRONMENT_PREFIX,
    LoadedSettings,
    add_settings,
    flag_of,
    resolve,
)

Config = TypeVar("Config")


def make_parser(command: str, config_class: type[Any], description: str) -> HintingParser:
    """Return a parser with --config and one flag per setting."""
    parser = GroupedParser(prog=f"pagewire {command}", description=description)
    parser.add_argument("--config", metavar="FILE", help="YAML file; keys are long flags")
    add_settings(parser, config_class)
    if issubclass(config_class, ServeConfig):
        parser.epilog = "Flags of vLLM are taken, too, or refused with a reason: docs/vllm.md."
    return parser


def load(
    parser: HintingParser, config_class: type[Config], argv: Sequence[str]
) -> tuple[LoadedSettings[Config], dict[str, Any]]:
    """Return the configuration, and by name what `parser` has besides its settings.

    Exits with 2 on misuse. Raises StartupError for a value that does not parse.
    """
    takes_names = issubclass(config_class, ServeConfig)
    if takes_names:
        # Last, so that they take no flag of the command.
        add_names(parser)
    flags = vars(parser.parse_args(prepared(argv, parser)))
    try:
        flags = translated(flags, parser.prog, flag_of) if takes_names else flags
    except StartupError as error:
        parser.error(error.message)
    file = flags.pop("config") or os.environ.get(ENVIRONMENT_PREFIX + "CONFIG")
    settings = {item.name for item in dataclasses.fields(config_class)}  # type: ignore[arg-type]
    others = {key: flags.pop(key) for key in list(flags) if key not in settings}
    if models := others.get("MODEL"):
        if len(models) > 1:
            advice = " ".join(f"--model {model}" for model in models)
            parser.error(f"unexpected argument {models[1]!r}; for several models write {advice}")
        # MODEL means the same as --model.
        flags["model"] = [*models, *flags.get("model", [])]
    warn_of_unknown(os.environ, config_class)
    return resolve(
        config_class,
        flags,
        os.environ,
        Path(file) if file else None,
        rewrite=(lambda values: translated(values, parser.prog, str)) if takes_names else dict,
    ), others


def translated(
    values: Mapping[str, Any], prog: str, spelled: Callable[[str], str]
) -> dict[str, Any]:
    """Return `values` with vLLM's names as those here; names without effect get a line each."""
    translation = translate(values, spelled)
    for note in translation.notes:
        print(f"{prog}: {note}", file=sys.stderr)
    return dict(translation.values)


def quiet(loaded: LoadedSettings[Config]) -> Config:
    """Return the configuration; processes report warnings only, unless --log-level is given."""
    if loaded.sources["log_level"] != "default":
        return loaded.config
    return dataclasses.replace(loaded.config, log_level="warning")  # type: ignore[type-var]


def add_model(parser: HintingParser) -> None:
    """Add the positional MODEL."""
    parser.add_argument(
        "MODEL",
        nargs="*",
        help="folder of a checkpoint, hub id or name=path (default: the built-in model)",
    )
