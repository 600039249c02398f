"""Requests of shared prefixes, sent in waves; each must have the tokens it has without a store."""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.cells.clusters import Cluster
from support.cells.kv_cells import PATIENCE_SECONDS, Answer, ask_all, running

Prompt = Sequence[int]


class Waves:
    """Prompts, what they give, and where their prefixes came from.

    Attributes:
        cluster: Where the waves go.
        loaded: Tokens by tier, over all waves so far.
        num_prompts: Different prompts.
    """

    cluster: Cluster

    def __init__(
        self,
        shared: Sequence[tuple[Prompt, list[int]]],
        fresh: Sequence[tuple[Prompt, list[int]]],
        fresh_at_a_time: int,
    ) -> None:
        self.num_prompts = len(shared) + len(fresh)
        self._shared = list(shared)
        self._fresh = itertools.cycle(fresh)
        self._fresh_at_a_time = fresh_at_a_time
        self.loaded: dict[str, int] = {}

    async def run_one(self) -> list[Answer]:
        """Send a wave, check what comes, and return it, the shared prompts first."""
        fresh = list(itertools.islice(self._fresh, self._fresh_at_a_time))
        wave = self._shared + fresh
        answers = await ask_all(self.cluster, [prompt for prompt, _ in wave])
        assert [answer.token_ids for answer in answers] == [token_ids for _, token_ids in wave]
        for answer in answers:
            for tier, count in answer.cached.items():
                self.loaded[tier] = self.loaded.get(tier, 0) + count
        return answers

    async def until_loaded(self, tiers: set[str]) -> None:
        """Send waves until prefixes come from one of these tiers."""
        before = dict(self.loaded)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while all(self.loaded.get(tier) == before.get(tier) for tier in tiers):
                await self.run_one()


def make_waves(
    checkpoint: Path,
    shared: Sequence[Prompt],
    fresh: Sequence[Prompt],
    fresh_at_a_time: int,
    **settings: Any,
) -> Waves:
    """Return waves with the tokens that come where nothing is kept; `settings` as of `running`."""
    prompts = [*shared, *fresh]
    with running(checkpoint, kv_offload="off", enable_prefix_caching=False, **settings) as cluster:
        answers = asyncio.run(ask_all(cluster, prompts))
    assert not any(answer.cached for answer in answers)
    pairs = [(one, answer.token_ids) for one, answer in zip(prompts, answers, strict=True)]
    return Waves(pairs[: len(shared)], pairs[len(shared) :], fresh_at_a_time)
