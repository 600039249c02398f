"""Parses the JSON of an adapter's files, which may be anything."""

import json
from collections import Counter
from typing import Any

from pagewire_shared.adapters.adapter_error import AdapterError


def parse_object(content: bytes, name: str, what: str) -> dict[str, Any]:
    """Return a JSON object.

    Args:
        name: The file.
        what: What the object is, for messages.

    Raises:
        AdapterError: It is no JSON object, or has a name twice, of which others read the first.
    """
    try:
        found = json.loads(content, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise AdapterError(f"{what} is not JSON: {error}", name) from error
    if not isinstance(found, dict):
        raise AdapterError(f"{what} is not a JSON object", name)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {twice[:100]!r} occurs twice")
    return result
