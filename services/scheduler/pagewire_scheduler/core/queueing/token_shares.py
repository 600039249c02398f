"""How tokens that are too few for all are divided between tenants. Pure arithmetic."""

from collections.abc import Callable, Mapping


def divide(
    num_tokens: int, wants: Mapping[str, int], weight_of: Callable[[str], float]
) -> dict[str, int]:
    """Return the tokens of each tenant: what it wants if that is less than its share by weight,
    and the rest of what there is by weight between the others.

    Everybody gets a token at least, and all tokens are given while they are wanted. There must be
    as many tokens as tenants, and each wants some.
    """
    weights = {tenant: weight_of(tenant) for tenant in wants}
    # Who wants least of its share comes first; what it leaves is shared by those behind it.
    order = sorted(wants, key=lambda tenant: wants[tenant] / weights[tenant])
    shares: dict[str, int] = {}
    weight_left = sum(weights.values())
    for num_behind, tenant in zip(reversed(range(len(order))), order, strict=True):
        share = int(num_tokens * weights[tenant] / weight_left) if num_behind else num_tokens
        # Rounding down, and a last one that takes the rest: nobody's token is lost.
        share = min(wants[tenant], max(1, min(share, num_tokens - num_behind)))
        shares[tenant] = share
        num_tokens -= share
        weight_left -= weights[tenant]
    return shares
