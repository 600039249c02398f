"""Sampling flags whose form on the command line is not that of the API. Pure."""

from collections.abc import Mapping
from typing import Any

from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

_STRUCTURED = ("json", "regex", "choice", "grammar")


def token_bias(text: str) -> str:
    """Return `text`, which must be ID=BIAS. Raises StartupError."""
    _bias_pair(text)
    return text


def bias_of(texts: tuple[str, ...]) -> dict[int, float]:
    """Return the map behind ID=BIAS texts. Raises StartupError."""
    return dict(_bias_pair(text) for text in texts)


def structured_outputs_of(flags: Mapping[str, Any]) -> StructuredOutputsParams | None:
    """Return what the flags structured_json, structured_regex, structured_choice and
    structured_grammar ask for; None for nothing. Raises InvalidRequestError for several."""
    given = {name: flags[f"structured_{name}"] for name in _STRUCTURED}
    given = {name: value for name, value in given.items() if value not in (None, ())}
    return StructuredOutputsParams(**given) if given else None


def _bias_pair(text: str) -> tuple[int, float]:
    token_id, _, bias = text.partition("=")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise StartupError(f"{text!r} is not ID=BIAS, such as 198=-100") from None
