"""Answers of a scripted scheduler to requests that want vectors."""

from collections.abc import Sequence

from contract.frontend_peers import STOP, Attach

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.kv.arrays import pack_f32, pack_u32, unpack_u32

SIZE = 4
Vector = Sequence[float]


def prompt_of(submit: wire.Submit) -> list[int]:
    """Return the token ids that are asked about."""
    return list(unpack_u32(submit.prompt_token_ids))


def vector_of(token_ids: Sequence[int]) -> list[float]:
    """Return a vector that says which prompt it is of, in numbers that float32 has exactly."""
    return [float(len(token_ids)), token_ids[0] / 64, -float(token_ids[-1]), 0.375]


async def submits(attach: Attach, count: int) -> list[wire.Submit]:
    """Return the next `count` requests, the shortest prompt first: they come in any order."""
    found = [await attach.next("submit") for _ in range(count)]
    return sorted(found, key=lambda submit: len(submit.prompt_token_ids))


def send_vectors(
    attach: Attach,
    answers: Sequence[tuple[wire.Submit, Vector]],
    *,
    epoch: int | None = None,
    num_cached: int = 0,
) -> None:
    """Send the vectors of a step."""
    asked = [submit for submit, _ in answers]
    attach.send(
        vectors=wire.VectorBatch(
            handles=pack_u32([submit.handle for submit in asked]),
            epochs=pack_u32([submit.epoch if epoch is None else epoch for submit in asked]),
            num_cached_tokens=pack_u32([num_cached] * len(asked)),
            vectors=b"".join(pack_f32(vector) for _, vector in answers),
        )
    )


def embed(attach: Attach, submit: wire.Submit, vector: Vector | None = None, **more: int) -> None:
    """Answer a request whole, by default with `vector_of` its prompt."""
    send_vectors(attach, [(submit, vector or vector_of(prompt_of(submit)))], **more)
    attach.finish(submit, 0, reason=STOP)
