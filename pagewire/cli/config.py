"""`pagewire config show`: prints the configuration that `serve` would use, with its sources."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pagewire.cli.commands import choose_action
from pagewire.cli.settings import add_model, load, make_parser
from pagewire.config import ServeConfig
from pagewire_shared.process.settings import LoadedSettings

DESCRIPTION = (
    "Show the configuration that `pagewire serve` with the same flags would use, as a YAML file "
    "that --config takes; a comment says where each value comes from."
)

HIDDEN = "(hidden)"


def run(name: str, argv: Sequence[str]) -> int:
    """Print the configuration. Raises StartupError for a value that does not parse."""
    action, rest = choose_action(name, argv, {"show": "show the effective configuration"})
    parser = make_parser(f"{name} {action}", ServeConfig, DESCRIPTION)
    add_model(parser)
    loaded, _ = load(parser, ServeConfig, rest)
    print(describe(loaded))
    return 0


def describe(loaded: LoadedSettings[ServeConfig]) -> str:
    """Return YAML, one key a line, with the source of each value as a comment."""
    lines = []
    for item in fields(loaded.config):
        if item.metadata["hidden"]:
            continue
        value = getattr(loaded.config, item.name)
        if item.metadata["secret"] and value:
            value = [HIDDEN] * len(value) if isinstance(value, tuple) else HIDDEN
        text = f"{item.name.replace('_', '-')}: {_yaml(value)}"
        lines.append(f"{text:<40} # {loaded.sources[item.name]}")
    return "\n".join(lines)


def _yaml(value: Any) -> str:
    # `serve` imports this module and seldom needs the package.
    import yaml

    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(plain, default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")
