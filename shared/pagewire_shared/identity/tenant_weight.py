"""The share of a tenant as text: TENANT=WEIGHT. Owns no queues."""

import math

from pagewire_shared.errors import StartupError


def parse_tenant_weight(text: str) -> tuple[str, float]:
    """Return tenant and weight; a tenant may have = in its name, and "" is the default one.

    Raises:
        StartupError: Not TENANT=WEIGHT, or the weight is no number greater than 0.
    """
    tenant, separator, written = text.rpartition("=")
    if not separator:
        raise StartupError(f"{text!r} is not TENANT=WEIGHT")
    try:
        weight = float(written)
    except ValueError:
        raise StartupError(f"{text!r}: the weight {written!r} is not a number") from None
    if not 0.0 < weight < math.inf:
        raise StartupError(f"{text!r}: a weight must be greater than 0 and finite")
    return tenant, weight
