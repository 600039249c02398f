"""Blocks that one group of ranks computes and another one pulls: equal bytes, and equal tokens."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pagewire_shared.errors import PagewireError
from pagewire_shared.kv.load import LoadOutcome
from support.cells.kv_peers import LOADED_BLOCKS, NAMES, PROMPT, Peer, eventually, peer
from support.cells.rank_threads import end_ranks, use_threads
from support.cells.worker_driver import request
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import FAMILY_CHECKPOINTS

pytestmark = needs_kernels

Sizes = Mapping[str, Any]

ONE: Sizes = {}
TWO: Sizes = {"tensor_parallel_size": 2}
STAGES: Sizes = {"pipeline_parallel_size": 2}
FOUR: Sizes = {**TWO, **STAGES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model"), layers=3, with_tokenizer=False)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose sums can be cut into slices."""
    folder = tmp_path_factory.mktemp("wide")
    return make_checkpoint(folder, layers=3, hidden=128, with_tokenizer=False)


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch)


@asynccontextmanager
async def pair(
    folder: Path,
    place: Path,
    sizes: tuple[Sizes, Sizes],
    transport: str = "grpc",
) -> AsyncIterator[tuple[Peer, Peer]]:
    """Yield a holder and a receiver of these sizes."""
    async with (
        peer(folder, f"unix:{place}/p", transport=transport, cpu_threads=2, **sizes[0]) as holder,
        peer(folder, f"unix:{place}/d", transport=transport, cpu_threads=2, **sizes[1]) as receiver,
    ):
        try:
            yield holder, receiver
        finally:
            for one in (holder, receiver):
                await asyncio.to_thread(end_ranks, one.replica)


async def check_hand_off(holder: Peer, receiver: Peer) -> None:
    """Pull the prompt while it is computed in chunks, and go on as the holder does."""
    pull = receiver.pull_from(holder)
    await holder.has_pull()
    first = await holder.prefill()
    answer = await pull
    assert (answer.outcome, answer.num_blocks) == (LoadOutcome.COMPLETE, len(NAMES))
    payloads = await receiver.payloads()
    assert list(payloads) == NAMES
    assert payloads == await holder.payloads()
    expected = first + await holder.decode(6)
    tail = (0, 160, len(PROMPT) - 160, 1, 0)
    result = await receiver.run([tail], new_sequences=[request(0, PROMPT, [*LOADED_BLOCKS, 5])])
    assert list(result.token_ids) + await receiver.decode(6) == expected
    await holder.is_clean()


@pytest.mark.parametrize(
    ("sizes", "transport"),
    [
        ((TWO, TWO), "auto"),
        ((STAGES, ONE), "grpc"),
        ((ONE, STAGES), "auto"),
        ((FOUR, TWO), "grpc"),
    ],
)
async def test_numerics_are_equal(
    folder: Path,
    tmp_path: Path,
    sizes: tuple[Sizes, Sizes],
    transport: str,
) -> None:
    async with pair(folder, tmp_path, sizes, transport) as (holder, receiver):
        assert holder.replica.info.layout == receiver.replica.info.layout
        await check_hand_off(holder, receiver)


@pytest.mark.parametrize(
    "settings",
    [{"kv_cache_dtype": "int8"}, {"cpu_backend": "torch"}, {"dtype": "bfloat16"}],
    ids=lambda settings: next(iter(settings.values())),
)
async def test_caches_of_other_forms(
    folder: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    sizes = {**TWO, **settings}
    async with pair(folder, tmp_path, (sizes, sizes)) as (holder, receiver):
        await check_hand_off(holder, receiver)


async def test_latents(tmp_path: Path) -> None:
    model_type, fields = FAMILY_CHECKPOINTS["deepseek-v3"]
    # Experts that kernels read in parts, too.
    fields = {**fields, "moe_intermediate_size": 64}
    folder = make_fallback_checkpoint(tmp_path / "m", model_type, fields)
    async with pair(folder, tmp_path, (TWO, FOUR)) as (holder, receiver):
        assert holder.replica.info.cache_groups[0].is_latent
        await check_hand_off(holder, receiver)


@pytest.mark.parametrize("sizes", [(TWO, ONE), (ONE, TWO), (FOUR, ONE)])
async def test_other_numbers_of_ranks_fit_with_sums_in_slices(
    wide: Path, tmp_path: Path, sizes: tuple[Sizes, Sizes]
) -> None:
    first, second = ({**one, "sum_slices": 2} for one in sizes)
    async with pair(wide, tmp_path, (first, second)) as (holder, receiver):
        assert holder.replica.info.layout == receiver.replica.info.layout
        await check_hand_off(holder, receiver)


async def test_any_number_of_ranks_computes_the_same_blocks(wide: Path, tmp_path: Path) -> None:
    slices = {"sum_slices": 2}
    async with pair(wide, tmp_path, ({**FOUR, **slices}, slices)) as (holder, receiver):
        assert await holder.prefill() == await receiver.prefill()
        payloads = await holder.payloads()
        assert list(payloads) == NAMES
        assert payloads == await receiver.payloads()


async def test_ranks_of_other_numbers_are_refused(folder: Path, tmp_path: Path) -> None:
    async with pair(folder, tmp_path, (TWO, ONE)) as (holder, receiver):
        await holder.prefill()
        answer = await receiver.pull_from(holder)
        assert (answer.outcome, answer.num_blocks) == (LoadOutcome.FAILED, 0)


async def test_a_rank_lost_in_a_pull_publishes_nothing(folder: Path, tmp_path: Path) -> None:
    async with pair(folder, tmp_path, (TWO, TWO)) as (holder, receiver):
        await holder.prefill()
        receiver.replica.group.end(1, "rank 1 of 2 is lost: the test says so")
        answer = await receiver.pull_from(holder, timeout_ms=5000)
        assert answer.num_blocks == 0
        assert await receiver.thread.submit(receiver.model_runner.blocks.held_names) == {}
        holder.replica.group.end(1, "rank 1 of 2 is lost: the test says so")
        with pytest.raises(PagewireError, match="rank 1 of 2 is lost"):
            await holder.payloads()
        await eventually(lambda: not holder.replica.sharer._pulls)
