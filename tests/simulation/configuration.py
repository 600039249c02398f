"""What kind of cell a seed makes: sizes, policies and peers. Plain data, drawn once."""

import random
from dataclasses import dataclass, replace

from pagewire_scheduler.core.blocks.cache_groups import CacheGroups
from pagewire_scheduler.core.data.stream_limits import StreamLimits

NO_LIMIT = 1000
"""More sequences than ever wait in one world."""

ADAPTERS = tuple(bytes([65 + number]) * 32 for number in range(5))
BAD_ADAPTER = ADAPTERS[4]
"""An adapter that cannot be loaded."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The fixed conditions of one world."""

    block_size: int
    num_blocks: int
    num_small_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    steps_in_flight: int
    window: int | None
    is_caching: bool
    policy: str
    max_num_waiting: int
    num_frontends: int
    num_cells: int
    num_workers: int
    max_model_len: int = 48
    num_stores: int = 0
    roles: str = "both"
    handoff: str = "auto"
    shared_step_tokens: int = 0
    max_grammars: int = 16
    new_bytes: int = 6 * 1024 * 1024
    min_prefix_tokens: int = 256
    further_windows: str = ""
    max_adapters: int = 0
    max_drafts: int = 0
    num_copies: int = 0

    @property
    def groups(self) -> CacheGroups:
        """The cache groups of all workers; `further_windows` are those behind the first."""
        return CacheGroups((self.window, *map(int, self.further_windows.split())))

    def num_adapter_slots(self, number: int) -> int:
        """The adapter slots of the worker of a number: one less on some."""
        return max(min(1, self.max_adapters), self.max_adapters - number % 2)

    @property
    def stream_limits(self) -> StreamLimits:
        """What may be under way to a worker."""
        return StreamLimits(
            max_grammars=self.max_grammars,
            new_bytes=self.new_bytes,
            min_prefix_tokens=self.min_prefix_tokens,
        )


def draw(seed: int) -> Configuration:
    """Return the conditions of a seed."""
    dice = random.Random(seed * 2 + 1)
    block_size = dice.choice([2, 4, 4, 8])
    # The longest ordinary request has 40 tokens; tiny pools hold little more than one.
    least = 40 // block_size
    num_blocks = least + dice.choice([0, 1, 2, 4, 8, 16, 40])
    max_num_seqs = dice.choice([2, 4, 6, 8])
    batched = max(max_num_seqs, dice.choice([3, 7, 12, 24, 64]))
    configuration = Configuration(
        block_size=block_size,
        num_blocks=num_blocks,
        num_small_blocks=max(2, num_blocks // 2),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=batched,
        steps_in_flight=dice.choice([1, 2, 2, 2, 3]),
        window=dice.choice([None, None, 8]),
        is_caching=dice.random() < 0.85,
        policy=dice.choice(["fcfs", "fair"]),
        max_num_waiting=dice.choice([*(NO_LIMIT,) * 3, 12]),
        num_frontends=dice.choice([1, 2, 2]),
        num_cells=1 if dice.random() < 0.85 else 2,
        num_workers=dice.choice([1, 1, 2, 3]),
        num_stores=dice.choice([0, 1, 1, 2]),
    )
    roles = dice.choice(["both", "apart", "apart", "mixed"])
    configuration = replace(
        configuration,
        roles=roles,
        handoff=dice.choice(["auto", "always", "always", "never"]),
        # Of both kinds in every cell.
        num_workers=configuration.num_workers if roles == "both" else dice.choice([2, 3, 4]),
        window=configuration.window if roles == "both" else None,
        shared_step_tokens=dice.choice([0, max_num_seqs, max(max_num_seqs, batched // 3)]),
        max_grammars=dice.choice([16, 1, 2]),
        # The longest sequence takes less than 600.
        new_bytes=dice.choice([6 * 1024 * 1024, 600, 1000]),
        min_prefix_tokens=dice.choice([256, 1, 6]),
    )
    configuration = _grouped(configuration, dice)
    configuration = replace(
        configuration,
        max_adapters=dice.choice([0, 0, 1, 2, 3]),
        max_drafts=dice.choice([0, 1, 4]),
    )
    num_copies = dice.choice([0, 1, 2, 2])
    if not num_copies or not configuration.num_stores:
        return configuration
    # Without copies, workers know one store: those of an older version.
    return replace(configuration, num_copies=num_copies, num_stores=configuration.num_stores + 1)


def _grouped(configuration: Configuration, dice: random.Random) -> Configuration:
    """Return `configuration`, in some cells with several cache groups."""
    further = dice.choice(["", "", "8", "8 3", "2"])
    if not further or configuration.window is not None:
        return configuration
    size = configuration.block_size
    grouped = replace(configuration, further_windows=further)
    least, num_blocks = grouped.groups.most_blocks(40 // size, size), configuration.num_blocks
    num_blocks += least - 40 // size
    return replace(grouped, num_blocks=num_blocks, num_small_blocks=max(4, num_blocks // 2))
