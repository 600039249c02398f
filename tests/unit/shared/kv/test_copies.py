"""Ranks of stores, and how a load is divided among those that have its blocks."""

from collections import Counter

from pagewire_shared.kv.copies import (
    BlockCopies,
    first_part,
    first_targets,
    parts_of,
    rank_stores,
)

STORES = frozenset(f"store-{number}:8200" for number in range(4))
STRIPES = [number * 2654435761 % 2**32 for number in range(4000)]


def test_all_stores_are_ranked_the_same_way_for_all() -> None:
    first = rank_stores(7, STORES)
    assert set(first) == STORES
    assert rank_stores(7, frozenset(sorted(STORES, reverse=True))) == first
    assert len({rank_stores(stripe, STORES) for stripe in STRIPES}) == 24, "every order comes"


def test_stores_have_equal_shares() -> None:
    for place in range(len(STORES)):
        counts = Counter(rank_stores(stripe, STORES)[place] for stripe in STRIPES)
        assert set(counts) == STORES
        assert all(0.9 < count / (len(STRIPES) / len(STORES)) < 1.1 for count in counts.values())


def test_a_store_that_comes_or_goes_moves_its_own_share_only() -> None:
    gone = min(STORES)
    moved = 0
    for stripe in STRIPES:
        before, after = rank_stores(stripe, STORES), rank_stores(stripe, STORES - {gone})
        assert tuple(store for store in before if store != gone) == after
        moved += before[0] != after[0]
    assert 0.22 < moved / len(STRIPES) < 0.28


def test_what_a_dead_store_had_is_divided_among_the_others() -> None:
    gone = min(STORES)
    lost = [stripe for stripe in STRIPES if rank_stores(stripe, STORES)[0] == gone]
    counts = Counter(first_targets(one, STORES, STORES - {gone}, frozenset(), 1)[0] for one in lost)
    assert set(counts) == STORES - {gone}
    assert all(0.8 < count / (len(lost) / 3) < 1.2 for count in counts.values())


def test_copies_go_to_living_stores_that_have_none() -> None:
    ranked = rank_stores(5, STORES)
    assert first_targets(5, STORES, STORES, frozenset(), 2) == list(ranked[:2])
    held = frozenset(ranked[:1])
    assert first_targets(5, STORES, STORES - {ranked[1]}, held, 1) == [ranked[2]]
    assert first_targets(5, STORES, (), held, 3) == []


def test_the_longest_part_is_taken_and_the_first_store_among_equals() -> None:
    assert first_part([0b01, 0b11, 0b10, 0b10], 0) == (0, 2)
    assert first_part([0b11, 0b11, 0b10], 0) == (1, 3)
    assert first_part([0b11, 0b11], 0) == (0, 2)
    assert first_part([0b11, 0b11], 0, banned=0b01) == (1, 2)
    assert first_part([0b11, 0b01], 1, banned=0b01) is None
    assert list(parts_of([0b01, 0b11, 0b10, 0b10])) == [(0, 0, 2), (1, 2, 4)]
    assert list(parts_of([0b100, 0, 0b1])) == [(2, 0, 1)], "nothing behind a missing block"
    assert list(parts_of([])) == []


def test_the_holders_of_a_block() -> None:
    copies = BlockCopies(("a", "b", "c"), (0b101, 0b010))
    assert copies.holding(0) == {"a", "c"}
    assert copies.holding(1) == {"b"}
