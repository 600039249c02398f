"""Leases end when they say, pins end with the last of them, and all of it is bounded."""

import math

import pytest

from pagewire_kvstore.blocks.leases import NO_LEASE, Leases
from pagewire_kvstore.blocks.types import BlockKey
from pagewire_shared.errors import InvalidRequestError, OverloadedError
from pagewire_shared.identity.ids import BlockName


def key_of(number: int) -> BlockKey:
    return BlockKey(bytes(16), 0, BlockName(number.to_bytes(16, "little")))


A, B, C = key_of(1), key_of(2), key_of(3)


def make(max_leases: int = 3, max_seconds: float = 60, max_blocks: int = 10) -> Leases:
    return Leases(max_leases, max_seconds, max_blocks)


def pinned(leases: Leases) -> list[BlockKey]:
    return [key for key in (A, B, C) if leases.is_pinned(key)]


def test_a_lease_ends_at_its_time() -> None:
    leases = make()
    leases.pin([A, B], 10, now=100)
    leases.expire(109.999)
    assert pinned(leases) == [A, B]
    leases.expire(110)
    assert pinned(leases) == []
    assert leases.num_leases == leases.num_pinned == 0


def test_a_block_stays_until_its_last_lease_ends() -> None:
    leases = make()
    first = leases.pin([A, B], 10, now=0)
    leases.pin([B, C], 20, now=0)
    third = leases.pin([B], 5, now=0)
    assert leases.num_pinned == 3
    leases.release(first)
    assert pinned(leases) == [B, C]
    leases.expire(5)
    leases.release(third)
    assert pinned(leases) == [B, C]
    leases.expire(20)
    assert pinned(leases) == []


def test_a_block_named_twice_is_pinned_once() -> None:
    leases = make(max_blocks=1)
    lease_id = leases.pin([A, A, A], 10, now=0)
    assert leases.num_pinned == 1
    leases.release(lease_id)
    assert pinned(leases) == []


def test_unknown_and_ended_leases_are_ignored() -> None:
    leases = make()
    first = leases.pin([A], 10, now=0)
    leases.release(first)
    second = leases.pin([A], 10, now=0)
    for lease_id in (first, second + 1, NO_LEASE, 2**64 - 1):
        leases.release(lease_id)
    assert pinned(leases) == [A]


def test_ids_count_up_from_the_first() -> None:
    leases = Leases(3, 60, 10, first_id=1 << 40)
    assert [leases.pin([A], 10, now=0) for _ in range(2)] == [1 << 40, (1 << 40) + 1]


def test_a_pin_without_keys_returns_no_lease() -> None:
    leases = make(max_leases=1)
    assert leases.pin([], 10, now=0) == NO_LEASE
    assert leases.num_leases == 0


def test_too_many_leases_are_refused_until_one_ends() -> None:
    leases = make(max_leases=2)
    first = leases.pin([A], 30, now=0)
    leases.pin([A], 20, now=0)
    with pytest.raises(OverloadedError, match="2 leases") as caught:
        leases.pin([B], 10, now=15.5)
    assert caught.value.retry_after_ms == 4500
    assert pinned(leases) == [A]
    leases.pin([B], 10, now=20)
    with pytest.raises(OverloadedError) as caught:
        leases.pin([C], 10, now=29.9999)
    assert caught.value.retry_after_ms == 1
    leases.release(first)
    leases.pin([C], 10, now=29.9999)
    assert pinned(leases) == [B, C]


def test_too_many_blocks_are_refused_whole() -> None:
    leases = make(max_blocks=3)
    leases.pin([A, B], 10, now=0)
    with pytest.raises(OverloadedError, match="2 blocks are pinned and 2 more wanted") as caught:
        leases.pin([B, C], 10, now=4)
    assert caught.value.retry_after_ms == 6000
    assert pinned(leases) == [A, B]
    assert leases.num_leases == 1
    leases.pin([B, C], 10, now=10)
    assert pinned(leases) == [B, C]


def test_retry_time_ignores_released_leases() -> None:
    leases = make(max_leases=1)
    leases.release(leases.pin([A], 1, now=0))
    leases.pin([A], 50, now=0)
    with pytest.raises(OverloadedError) as caught:
        leases.pin([B], 1, now=0)
    assert caught.value.retry_after_ms == 50_000


@pytest.mark.parametrize("seconds", [0, -1, 60.001, math.inf, math.nan])
def test_invalid_lease_lengths_are_refused(seconds: float) -> None:
    leases = make(max_seconds=60)
    with pytest.raises(InvalidRequestError, match="at most 60 seconds") as caught:
        leases.pin([A], seconds, now=0)
    assert caught.value.field == "lease_ms"
    assert leases.num_leases == 0


def test_a_lease_that_never_fits_is_an_invalid_request() -> None:
    leases = make(max_blocks=2)
    with pytest.raises(InvalidRequestError, match="3 blocks in one lease"):
        leases.pin([A, B, C], 1, now=0)


def test_pin_and_release_in_turn_do_not_grow_the_heap() -> None:
    leases = make(max_seconds=3600)
    leases.pin([C], 3600, now=0)
    for _ in range(1000):
        leases.release(leases.pin([A], 3600, now=0))
    assert len(leases._ends) < 100
    assert pinned(leases) == [C]
    leases.expire(3600)
    assert pinned(leases) == []
