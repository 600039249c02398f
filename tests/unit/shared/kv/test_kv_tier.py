"""Which names of tiers are taken, and that metrics stay few."""

import pytest

from pagewire_shared.kv.tier import is_tier_name, tier_label


@pytest.mark.parametrize("name", ["memory", "disk", "redis", "s3", "lm-cache_2", "t" * 32])
def test_valid_tier_names_are_accepted(name: str) -> None:
    assert is_tier_name(name)


@pytest.mark.parametrize("name", ["", "t" * 33, "Disk", "a b", "disk\n", "ä", "worker", None, 3])
def test_invalid_tier_names_are_refused(name: object) -> None:
    assert not is_tier_name(name)


def test_labels_are_few() -> None:
    names = ["memory", "disk", "redis", *(f"tier-{number}" for number in range(100))]
    assert {tier_label(name) for name in names} == {"memory", "disk", "redis", "other"}
