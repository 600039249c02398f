"""A cell of the version before this one is replaced process by process, under load that never
pauses: no stream fails, and each has the tokens of an undisturbed run."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest
from integration.faults.test_version_compatibility import (  # noqa: F401 - checkpoint and others
    NUM_STREAMS,
    NUM_TOKENS,
    PATIENCE_SECONDS,
    PROMPTS,
    checkpoint,
    expected,
    mixed_cell,
    tokens,
    tree,
)

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from support.cells.kv_cells import Answer, ask_all
from support.cells.role_cells import MODEL, RoleCell, worker_names
from support.processes.role_processes import Place, RoleProcess
from support.traffic.streams import Stream, completion, eventually_clean

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ROLLED = ("kvstore", "worker-0", "worker-1", "scheduler")
STREAMS_BETWEEN = 3
"""Which end between two replacements, at least."""


def replace(member: RoleProcess, *, is_killed: bool) -> None:
    """End a process, and start it from the code of today."""
    if is_killed:
        member.kill()
    else:
        member.terminate()
    member.place = Place(member.place.address)
    member.start()
    member.wait_ready(PATIENCE_SECONDS)


async def rolled(cell: RoleCell, *, is_killed: bool) -> list[tuple[int, Stream]]:
    """Replace processes one by one while streams are followed; return each with its number."""
    ended: list[tuple[int, Stream]] = []
    is_over = False
    async with grpc.aio.insecure_channel(cell.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)

        async def load(number: int) -> None:
            while not is_over:
                stream = Stream(completion(MODEL, PROMPTS[number], NUM_TOKENS))
                await stream.follow(stub)
                ended.append((number, stream))

        loads = [asyncio.create_task(load(number)) for number in range(NUM_STREAMS)]
        for name in ROLLED:
            least = len(ended) + STREAMS_BETWEEN
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(ended) < least:
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(replace, cell.members[name], is_killed=is_killed)
        is_over = True
        await asyncio.wait_for(asyncio.gather(*loads), PATIENCE_SECONDS)
    return ended


@pytest.mark.parametrize("is_killed", [False, True], ids=["drained", "killed"])
def test_no_stream_fails(
    checkpoint: Path,  # noqa: F811
    tree: Path,  # noqa: F811
    tmp_path: Path,
    expected: list[Answer],  # noqa: F811
    is_killed: bool,
) -> None:
    old = ("frontend", *ROLLED)
    with mixed_cell(checkpoint, tmp_path, tree, old, worker_names(num_workers=2)) as cell:
        ended = asyncio.run(rolled(cell, is_killed=is_killed))
        assert [stream.error for _, stream in ended] == [""] * len(ended)
        for number, stream in ended:
            assert stream.token_ids == tokens(expected)[number]
        assert sum(stream.num_resumes for _, stream in ended) > 0, "none met a replacement"
        asyncio.run(eventually_clean(cell.grpc_address, 2, PATIENCE_SECONDS))
        # The frontend, the last of the old ones, is replaced while nothing is asked of it.
        replace(cell.members["frontend"], is_killed=is_killed)
        answers = asyncio.run(ask_all(cell, PROMPTS, num_tokens=NUM_TOKENS))
        assert tokens(answers) == tokens(expected)
