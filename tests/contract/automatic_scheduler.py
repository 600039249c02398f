"""A scripted scheduler that answers every request by itself, always the same way, with all that was
asked: pieces of tokens, log-probabilities, several choices, vectors."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
from contract.frontend_gateway import gateway
from contract.frontend_peers import LENGTH, STOP, Attach, ids_of
from contract.scored_answers import score_whole_prompt
from contract.vector_answers import SIZE, embed

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.kv.arrays import pack_f32, pack_u32

TEXT = "Grüße, 日本!"
NUM_CACHED = 1
# The second piece begins inside of a character, the last is the rest.
PIECES = (3, 4)


@asynccontextmanager
async def automatic_gateway(
    checkpoint, submits: list[wire.Submit] | None = None, **settings
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a frontend whose requests are all answered; `submits` takes them."""
    async with gateway(checkpoint, embedding_size=SIZE, **settings) as (client, attach, _):
        task = asyncio.create_task(_answer_all(attach, [] if submits is None else submits))
        try:
            yield client
        finally:
            task.cancel()


async def _answer_all(attach: Attach, submits: list[wire.Submit]) -> None:
    while True:
        message = await attach.received.get()
        if message.WhichOneof("message") != "submit":
            continue
        submit = message.submit
        submits.append(submit)
        if submit.WhichOneof("kind") == "pool":
            embed(attach, submit)
        else:
            _generate(attach, submit)


def _generate(attach: Attach, submit: wire.Submit) -> None:
    if submit.sampling.HasField("prompt_logprobs"):
        score_whole_prompt(attach, submit)
    for choice in range(len(submit.emitted)):
        ids = ids_of(f"{TEXT}{choice}")[: submit.sampling.max_tokens]
        starts = [0, *(end for end in PIECES if end < len(ids)), len(ids)]
        for begin, end in itertools.pairwise(starts):
            _send(attach, submit, choice, begin, ids[begin:end])
        is_cut = len(ids) == submit.sampling.max_tokens
        reason = LENGTH if is_cut else STOP
        attach.finish(submit, len(ids), choice=choice, reason=reason)


def _send(attach: Attach, submit: wire.Submit, choice: int, begin: int, ids: Sequence[int]) -> None:
    scores = {}
    if submit.sampling.HasField("logprobs"):
        num_top = submit.sampling.logprobs
        tops = [[token, *range(10, 9 + num_top)][:num_top] for token in ids]
        scores = {
            "logprobs": pack_f32([-0.5 - begin - i for i in range(len(ids))]),
            "ranks": pack_u32([1] * len(ids)),
            "num_top": pack_u32(map(len, tops)),
            "top_token_ids": pack_u32([token for top in tops for token in top]),
            "top_logprobs": pack_f32([-0.5 * rank for top in tops for rank, _ in enumerate(top)]),
        }
    attach.send(
        tokens=wire.TokenBatch(
            handles=pack_u32([submit.handle]),
            choices=pack_u32([choice]),
            epochs=pack_u32([submit.epoch]),
            first_positions=pack_u32([begin]),
            counts=pack_u32([len(ids)]),
            token_ids=pack_u32(ids),
            num_cached_tokens=pack_u32([NUM_CACHED]),
            **scores,
        )
    )
