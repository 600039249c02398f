"""Configuration of a subcommand from its flags, the environment and a file."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pagewire_shared.process.flags import HintingParser
from pagewire_shared.process.settings import (
    ENVIRONMENT_PREFIX,
    LoadedSettings,
    add_settings,
    normalise_flags,
    resolve,
)

Config = TypeVar("Config")


def make_parser(command: str, config_class: type[Any], description: str) -> HintingParser:
    """Return a parser with --config and one flag per setting."""
    parser = HintingParser(prog=f"pagewire {command}", description=description)
    parser.add_argument("--config", metavar="FILE", help="YAML file; keys are long flags")
    add_settings(parser, config_class)
    return parser


def load(
    parser: HintingParser, config_class: type[Config], argv: Sequence[str]
) -> tuple[LoadedSettings[Config], dict[str, Any]]:
    """Return the configuration, and by name what `parser` has besides its settings.

    Exits with 2 on misuse. Raises StartupError for a value that does not parse.
    """
    flags = vars(parser.parse_args(normalise_flags(argv)))
    file = flags.pop("config") or os.environ.get(ENVIRONMENT_PREFIX + "CONFIG")
    settings = {item.name for item in dataclasses.fields(config_class)}  # type: ignore[arg-type]
    others = {key: flags.pop(key) for key in list(flags) if key not in settings}
    if others.get("MODEL") is not None:
        # MODEL means the same as --model.
        flags["model"] = [others["MODEL"], *flags.get("model", [])]
    return resolve(config_class, flags, os.environ, Path(file) if file else None), others


def quiet(loaded: LoadedSettings[Config]) -> Config:
    """Return the configuration; processes report warnings only, unless --log-level is given."""
    if loaded.sources["log_level"] != "default":
        return loaded.config
    return dataclasses.replace(loaded.config, log_level="warning")  # type: ignore[type-var]


def add_model(parser: HintingParser) -> None:
    """Add the positional MODEL."""
    parser.add_argument(
        "MODEL",
        nargs="?",
        help="folder of a checkpoint, hub id or name=path (default: the built-in model)",
    )
