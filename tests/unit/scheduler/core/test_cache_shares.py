"""Bounds of what tenants keep in a cache that no sequence holds."""

import random
from dataclasses import replace

import pytest
from unit.scheduler.cell import Cell
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.blocks.block_pool import BlockPool
from pagewire_scheduler.core.blocks.cache_shares import CacheOwner, CacheShares
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.sampling.params import SamplingParams

ONE = SamplingParams(max_tokens=1)
SIZE = 1000  # bytes of a block
MODEL = replace(worker_info(1).model, vocab_size=1000, max_model_len=100)


def prompt(number: int) -> list[int]:
    """Return a prompt of two whole blocks and a token more; no two begin alike."""
    return [number, *range(1, 9)]


class Tenants:
    """A cell of 8 blocks of 4 tokens; each request ends before the next one comes."""

    def __init__(self) -> None:
        self.cell = Cell(model=MODEL, num_blocks=8, bytes_per_block=SIZE, steps_in_flight=1)
        assert self.cell.info.model.block_size == 4
        self.pool = self.cell.core.workers[self.cell.info.worker_id].pool
        self._number = 0

    def ask(self, tenant: str, number: int, cache_blocks: int | None = None) -> int:
        """Run a request to its end; return how many blocks of its prompt were cached."""
        self._number += 1
        self.cell.submit(
            self._number,
            prompt(number),
            sampling=ONE,
            tenant=tenant,
            salt=tenant.encode(),
            cache_bytes=None if cache_blocks is None else cache_blocks * SIZE + SIZE // 2,
        )
        plan = self.cell.planned()
        num_cached = plan.starts[0] // 4
        self.cell.answer(plan)
        self.cell.run()
        return num_cached


def test_a_tenant_with_a_bound_pushes_out_its_own_blocks_alone() -> None:
    tenants = Tenants()
    assert tenants.ask("quiet", 900) == 0
    for number in range(20, 30):
        tenants.ask("loud", number, cache_blocks=2)
    assert tenants.pool.shares.num_idle("loud") == 2
    assert tenants.ask("quiet", 900) == 2
    # Its latest prompt is there, and the ones before are not.
    assert tenants.ask("loud", 29, cache_blocks=2) == 2
    assert tenants.ask("loud", 25, cache_blocks=2) == 0


def test_without_a_bound_the_least_recently_used_go_first() -> None:
    tenants = Tenants()
    tenants.ask("quiet", 900)
    for number in range(20, 30):
        tenants.ask("loud", number)
    assert tenants.ask("quiet", 900) == 0
    assert tenants.pool.shares.num_idle("loud") == 0


def test_a_bound_of_nothing_keeps_nothing() -> None:
    tenants = Tenants()
    for number in (20, 20):
        tenants.ask("loud", number, cache_blocks=0)
        assert tenants.pool.shares.num_idle("loud") == 0
    # What is beyond the bound is given out before all others, not before it is needed.
    tenants.ask("quiet", 900)
    assert tenants.ask("loud", 20, cache_blocks=0) == 0


def test_a_bound_that_changes_counts_from_the_next_request_on() -> None:
    tenants = Tenants()
    for number in (20, 21):
        tenants.ask("loud", number, cache_blocks=4)
    assert tenants.pool.shares.num_idle("loud") == 4
    tenants.ask("loud", 22, cache_blocks=2)
    assert tenants.pool.shares.num_idle("loud") == 2
    assert tenants.ask("loud", 22, cache_blocks=2) == 2


@pytest.mark.parametrize("seed", range(4))
def test_no_tenant_keeps_more_than_its_bound(seed: int) -> None:
    """A pool that random holders take from and give back to."""
    chance, pool = random.Random(seed), BlockPool(24)
    owners = [CacheOwner("a", 3), CacheOwner("b", 0), CacheOwner("c", 6), None]
    held: list[int] = []
    named: list[BlockName] = []
    for number in range(3000):
        if held and (len(held) > 12 or chance.random() < 0.5):
            pool.release(held.pop(chance.randrange(len(held))))
        elif named and chance.random() < 0.4:
            block = pool.cache.find(chance.choice(named))
            if block is not None:
                pool.acquire(block)
                held.append(block)
        else:
            block, name = pool.allocate(), BlockName(number.to_bytes(16, "little"))
            pool.name(block, name, 1)
            pool.validate(block, 1)
            owner = chance.choice(owners)
            if owner is not None:
                pool.shares.own(block, owner)
            held.append(block)
            named.append(name)
        for owner in owners[:3]:
            assert owner is not None
            assert pool.shares.num_idle(owner.tenant) <= owner.most_blocks
        assert pool.num_free == pool.num_blocks - len(set(held))


def test_nothing_is_kept_of_blocks_that_are_gone() -> None:
    shares = CacheShares()
    owner = CacheOwner("a", 1)
    for block in range(3):
        shares.own(block, owner)
    assert [shares.idle(block) for block in range(3)] == [[], [0], [1]]
    for block in range(3):
        shares.forget(block)
    assert shares.num_idle("a") == 0
    assert not shares._owners
    assert not shares._idle
