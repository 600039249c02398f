"""A worker with a second cache group that holds recurrent states: the scheduler keeps its books by
the layout that the worker announces, over real sockets."""

from pathlib import Path

import pytest
from contract.scheduler_peers import attached, eventually, frontend_of, running_scheduler
from contract.scripted_worker import ScriptedWorker, expected
from contract.state_books import StateBooks

from pagewire_protos.common.v1 import layout_pb2
from pagewire_scheduler.core.audit import audit
from pagewire_shared.errors import PeerRefusedError

BLOCK_SIZE = 4
NUM_TOKENS = 24
STATE, FULL = layout_pb2.CACHE_KIND_STATE, layout_pb2.CACHE_KIND_FULL


def prompt_of(number: int) -> list[int]:
    """Prompts that begin alike."""
    return [*range(5, 22), 30 + number]


async def test_every_token_finds_the_state_before_it(tmp_path: Path) -> None:
    books = StateBooks(BLOCK_SIZE)
    async with (
        running_scheduler(tmp_path) as scheduler,
        frontend_of(scheduler) as frontend,
        attached(
            ScriptedWorker(
                scheduler.address,
                block_size=BLOCK_SIZE,
                num_blocks=30,
                max_num_batched_tokens=8,
                further_kinds=[STATE],
                on_plan=books.take,
            )
        ),
    ):
        await frontend.until(lambda: frontend.models == ["tiny"])
        most_held = 0
        for handle in range(1, 7):
            await frontend.submit(handle, prompt_of(handle), max_tokens=NUM_TOKENS)
            if handle == 1:
                await frontend.until(lambda: (1, 0) in frontend.finished)
        for handle in range(2, 7):
            await frontend.until(lambda handle=handle: (handle, 0) in frontend.finished)
            [pool] = audit(scheduler.loop.core).pools
            most_held = max(most_held, pool.groups[1].most_held)
        for handle in range(1, 7):
            assert frontend.tokens[handle, 0] == expected(prompt_of(handle), NUM_TOKENS)
        report = audit(scheduler.loop.core)
    assert books.problems == []
    assert books.num_resumed > 0
    assert report.counts.num_preemptions > 0
    assert report.findings == ()
    # The block of the state, the one being written, and two of each step under way.
    assert most_held <= 2 + 2 * 2
    assert [group.window for group in report.pools[0].groups] == [None, 2]


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        ([STATE, FULL], "come first"),
        ([layout_pb2.CACHE_KIND_SLIDING], "sliding without a window"),
        ([layout_pb2.CACHE_KIND_UNSPECIFIED], "no known kind"),
        ([STATE] * 8, "1 to 8 cache groups"),
    ],
)
async def test_groups_that_the_books_cannot_be_kept_of_are_refused(
    tmp_path: Path, kinds: list[int], text: str
) -> None:
    async with running_scheduler(tmp_path) as scheduler:
        worker = ScriptedWorker(scheduler.address, further_kinds=kinds)
        with pytest.raises(PeerRefusedError, match=text) as refused:
            await worker.run()
        assert refused.value.field == "layout.groups"
        await eventually(lambda: not scheduler.loop.core.workers)
