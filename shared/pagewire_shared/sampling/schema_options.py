"""Options of JSON outputs that vLLM has beside the schema, written into the schema.

So a constraint stays one text, and its compiler needs to know nothing else.
"""

from collections.abc import Mapping
from typing import Any, Final

OPTIONS: Final = "x-guidance"
"""The key of a schema under which llguidance reads options."""

FLEXIBLE: Final = "whitespace_flexible"
"""The option that allows white space between tokens of JSON, if it is not false."""

_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Keywords whose values have a schema per name."""

_DATA: Final = frozenset({"const", "default", "enum", "examples", OPTIONS})
"""Keywords whose values have no schemas."""


def compact(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without white space between tokens of JSON (disable_any_whitespace)."""
    given = schema.get(OPTIONS)
    options = given if isinstance(given, Mapping) else {}
    return {**schema, OPTIONS: {**options, FLEXIBLE: False}}


def is_compact(schema: object) -> bool:
    """Return whether the options of a schema forbid white space between tokens of JSON."""
    options = schema.get(OPTIONS) if isinstance(schema, Mapping) else None
    return isinstance(options, Mapping) and options.get(FLEXIBLE) is False


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose objects have no properties but those it names.

    Objects that say something of further properties keep it. This is
    disable_additional_properties of vLLM (vllm/v1/structured_output/backend_guidance.py).
    """
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            found[key] = {name: _closed_part(part) for name, part in value.items()}
        else:
            found[key] = value if key in _DATA else _closed_part(value)
    if "properties" in found or "patternProperties" in found:
        found.setdefault("additionalProperties", False)
    return found


def _closed_part(value: Any) -> Any:
    if isinstance(value, Mapping):
        return closed(value)
    return [_closed_part(one) for one in value] if isinstance(value, list) else value
