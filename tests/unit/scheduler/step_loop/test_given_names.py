"""Names of the blocks of a prompt that come with it: used where they fit, checked, and computed by
who has the time."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from unit.scheduler.cell import FRONTEND, Cell
from unit.scheduler.hellos import MODEL, worker_info

from pagewire_frontend.scheduler.convert import submit_message
from pagewire_frontend.session.journal_records import SubmitRecord
from pagewire_frontend.session.prompt_blocks import BlockNaming, name_prompt
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.convert.frontend import served_models, submission
from pagewire_scheduler.core.blocks import prefix_cache
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv.block_hash import block_name, root_name
from pagewire_shared.sampling.params import SamplingParams

PROMPT = [(7 * number) % 40 for number in range(61)]
NAMING = BlockNaming(
    model_fingerprint=MODEL.model_fingerprint,
    layout_fingerprint=b"l" * 16,
    dtype="float32",
    block_size=4,
    is_by_tenant=True,
)
ONE = SamplingParams(max_tokens=2, seed=1, ignore_eos=True)


def message_of(
    number: int,
    prompt: Sequence[int],
    naming: BlockNaming | None = NAMING,
    tenant: str | None = "acme",
    cache_salt: bytes | None = b"pepper",
) -> pb.Submit:
    """What a frontend sends."""
    blocks = None
    if naming is not None:
        blocks = asyncio.run(name_prompt(naming, prompt, tenant=tenant, cache_salt=cache_salt))
    record = SubmitRecord(
        request_id=RequestId(number.to_bytes(16, "little")),
        epoch=0,
        handle=number,
        model="tiny",
        prompt_token_ids=prompt,
        emitted=(((), False),),
        params=ONE,
        eos_token_ids=(),
        tenant=tenant,
        cache_salt=cache_salt,
        priority=0,
        prompt_blocks=blocks,
    )
    return submit_message(record, None, 0).submit


def test_they_are_the_names_that_the_scheduler_would_compute() -> None:
    given = message_of(1, PROMPT).prompt_blocks
    salt = submission(message_of(1, PROMPT, None), 0.0).salt
    root = root_name(
        model_fingerprint=MODEL.model_fingerprint,
        layout_fingerprint=b"l" * 16,
        dtype="float32",
        salt=salt,
    )
    assert (given.root, given.block_size) == (root, 4)
    names, parent = [], root
    for start in range(0, 60, 4):
        parent = block_name(parent, PROMPT[start : start + 4])
        names.append(parent)
    assert given.names == b"".join(names)


@pytest.mark.parametrize("is_given", [True, False])
def test_a_cached_prompt_is_hashed_by_whoever_has_the_time(
    monkeypatch: pytest.MonkeyPatch, is_given: bool
) -> None:
    cell = Cell()
    cell.core.submit(FRONTEND, submission(message_of(1, PROMPT, None), 0.0), 0.0)
    cell.run()
    num_hashed = 0

    def counted(parent: bytes, token_ids: Sequence[int]) -> bytes:
        nonlocal num_hashed
        num_hashed += 1
        return block_name(parent, token_ids)  # type: ignore[arg-type]

    monkeypatch.setattr(prefix_cache, "block_name", counted)
    message = message_of(2, PROMPT, NAMING if is_given else None)
    cell.core.submit(FRONTEND, submission(message, 0.0), 0.0)
    plan = cell.planned()
    assert plan.num_new_tokens == [1], "all but the last token is cached"
    assert num_hashed == (0 if is_given else 15)


@pytest.mark.parametrize(
    "naming",
    [
        replace(NAMING, model_fingerprint=b"x" * 32),
        replace(NAMING, layout_fingerprint=b"x" * 16),
        replace(NAMING, dtype="bfloat16"),
        replace(NAMING, block_size=8),
        replace(NAMING, is_by_tenant=False),
    ],
)
def test_names_of_another_root_are_left_alone(naming: BlockNaming) -> None:
    cell = Cell()
    cell.core.submit(FRONTEND, submission(message_of(1, PROMPT, None), 0.0), 0.0)
    cell.run()
    cell.core.submit(FRONTEND, submission(message_of(2, PROMPT, naming), 0.0), 0.0)
    plan = cell.planned()
    assert plan.num_new_tokens == [1], "it finds what is cached under the names of its own"


def test_names_that_are_not_those_of_the_prompt_are_refused() -> None:
    message = message_of(1, PROMPT)
    message.prompt_blocks.names = message_of(1, PROMPT[1:]).prompt_blocks.names
    with pytest.raises(InvalidRequestError) as raised:
        submission(message, 0.0)
    assert raised.value.field == "prompt_blocks"
    for fields in ({"names": b"x" * 17}, {"names": b"x" * 16 * 16}, {"root": b"x"}):
        message = message_of(1, PROMPT)
        for name, value in fields.items():
            setattr(message.prompt_blocks, name, value)
        with pytest.raises(InvalidRequestError) as raised:
            submission(message, 0.0)
        assert raised.value.field == "prompt_blocks"


def test_a_frontend_is_told_of_what_names_are_made() -> None:
    cell = Cell()
    other = worker_info(2, layout_fingerprint=b"k" * 16, worker_id=b"2" * 16)
    cell.core.attach_worker(other)
    cell.core.attach_worker(worker_info(3, worker_id=b"3" * 16))
    (served,) = served_models(cell.core.models()).models
    found = [(one.layout_fingerprint, one.dtype, one.block_size) for one in served.namings]
    assert found == [(b"l" * 16, "float32", 4), (b"k" * 16, "float32", 4)], "most workers first"
    assert served.namings[0].is_by_tenant


def test_a_long_prompt_is_named_in_pieces_beside_the_event_loop() -> None:
    async def scene() -> None:
        num_turns = 0

        async def others() -> None:
            nonlocal num_turns
            while True:
                num_turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        prompt = [number % 40 for number in range(40_000)]
        blocks = await name_prompt(NAMING, prompt, tenant=None, cache_salt=None)
        beside.cancel()
        assert len(blocks.names) == 16 * 10_000
        assert num_turns > 10

    asyncio.run(scene())
