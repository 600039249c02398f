"""Warns of PAGEWIRE_* variables of the environment that no setting has: most are typing errors."""

import difflib
import re
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from pagewire.config import ROLE_CONFIGS, ServeConfig
from pagewire_shared.process.settings import ENVIRONMENT_PREFIX
from pagewire_shared.sampling.params import field_names

_INTERNAL: Final = frozenset(
    [
        "CONFIG",
        "FIRST_HOUR_TOKEN",
        "PACKAGES",
        "POISON",
        "REQUIRE_TOOLS",
        "VERSION",
        "CONTINUES_HERE",
    ]
)
"""Variables that are not settings: of tests, images and kernels."""

OF_OTHER_COMMANDS: Final = frozenset(
    [
        "BASE_URL",
        "ENDPOINT",
        "HTML",
        "INPUT_LEN",
        "JSON",
        "MAX_CONCURRENCY",
        "NUM_PROMPTS",
        "OUTPUT_LEN",
        "REQUEST_RATE",
        "SERVER",
        "SERVER_API_KEY",
        "STRUCTURED_CHOICE",
        "STRUCTURED_GRAMMAR",
        "STRUCTURED_JSON",
        "STRUCTURED_REGEX",
        "USE_RUNNING",
    ]
) | {name.upper() for name in field_names()}
"""Settings of `generate`, `chat` and `bench`, which must not import each other to be known."""

_OF_KUBERNETES: Final = re.compile(r".*_SERVICE_(HOST|PORT\w*)|.*_PORT_\d+_\w+|[A-Z_]+_PORT")
"""Variables that Kubernetes sets for each service whose name begins with pagewire."""


def warn_of_unknown(environ: Mapping[str, str], *config_classes: type[Any]) -> None:
    """Print one line for the variables that nothing reads, with the closest name of each.

    Args:
        config_classes: Configurations of the command, beside those of `serve` and the roles.
    """
    known = known_names(*config_classes)
    found = []
    for variable in environ:
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name == variable or name in known or _OF_KUBERNETES.fullmatch(name):
            continue
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {ENVIRONMENT_PREFIX}{close[0]}?)" if close else ""
        found.append(variable + hint)
    if found:
        print(f"pagewire: nothing reads {', '.join(found)}", file=sys.stderr)


def known_names(*config_classes: type[Any]) -> set[str]:
    """Return the names of variables that something reads, without their prefix."""
    classes: tuple[type[Any], ...] = (ServeConfig, *ROLE_CONFIGS.values(), *config_classes)
    names = {item.name.upper() for cls in classes for item in fields(cls)}
    return names | _INTERNAL | OF_OTHER_COMMANDS
