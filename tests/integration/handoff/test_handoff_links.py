"""Hand-offs over links that lose everything, or are too slow: prompts are computed where their
tokens are generated until the link is better."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.cells.namespaced_cells import namespaced_cell
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.namespaces import Network
from support.traffic.handoff_waves import NUM_STREAMS, PATIENCE_SECONDS, Scene, scheduler_flags
from support.traffic.streams import eventually_clean
from support.traffic.watched_streams import eventually, look

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

PAIR = ("prefill-0", "decode-0")
SLOW_BYTES = 125_000.0  # 1 Mbit/s
FEW_TOKENS = 4


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("links") / "model"
    return make_checkpoint(folder, architecture="Qwen3ForCausalLM", hidden=256, layers=8)


@contextmanager
def pair(network: Network, checkpoint: Path, handoff: str) -> Iterator[Scene]:
    """A worker for prompts and one for tokens, after an undisturbed wave."""
    flags = scheduler_flags(handoff)
    with namespaced_cell(
        network, checkpoint, num_prefill=1, num_decode=1, has_store=False, flags=flags
    ) as cell:
        scene = Scene(cell, network)
        streams = asyncio.run(scene.get_used_to())
        assert any(stream.is_handed_off for stream in streams)
        yield scene
        asyncio.run(eventually_clean(cell.grpc_address, len(PAIR), PATIENCE_SECONDS))


async def until_left_alone(scene: Scene, *verdicts: str) -> None:
    """Send waves until nobody of one waits for a transfer, and a wave's worth were for `verdicts`.

    A pair that is left alone is tried again by one stream now and then.
    """

    async def is_left_alone() -> bool:
        streams = await scene.follow(FEW_TOKENS)
        waits = [stream.timeline["transfer_ms"] for stream in streams]
        if any(stream.is_handed_off for stream in streams) or any(waits):
            return False
        # The scheduler shows its counts once a second; meanwhile there are more waves.
        return scene.num_verdicts(*verdicts) >= NUM_STREAMS

    await eventually(is_left_alone, f"nobody waits for a transfer, and prompts are {verdicts}")


def test_a_pair_that_is_parted_is_left_alone_and_tried_again(
    network: Network, checkpoint: Path
) -> None:
    with pair(network, checkpoint, "always") as scene:
        network.part(*PAIR)
        asyncio.run(until_left_alone(scene, "broken"))
        assert asyncio.run(look(scene.cell)).num_failures() >= 2
        network.join(*PAIR)
        asyncio.run(scene.until_handed_over())


def test_nobody_hands_off_over_a_link_that_is_too_slow(network: Network, checkpoint: Path) -> None:
    with pair(network, checkpoint, "auto") as scene:
        network["prefill-0"].slow(SLOW_BYTES)
        # Dearer: what is known of the link makes computing here cheaper; slow: it is not asked.
        asyncio.run(until_left_alone(scene, "slow", "broken", "dearer"))
        network["prefill-0"].at_full_speed()
