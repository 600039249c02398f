"""Answers of a scripted scheduler that carry log-probabilities, ranks and alternatives."""

from collections.abc import Sequence

from contract.frontend_peers import Attach

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.kv.arrays import pack_f32, pack_u32, unpack_u32

Scored = tuple[float, int, Sequence[tuple[int, float]]]
"""Log-probability, rank, and alternatives as (token id, log-probability)."""


def _score_arrays(scores: Sequence[Scored]) -> dict[str, bytes]:
    tops = [top for _, _, top in scores]
    return {
        "logprobs": pack_f32([logprob for logprob, _, _ in scores]),
        "ranks": pack_u32([rank for _, rank, _ in scores]),
        "num_top": pack_u32(map(len, tops)),
        "top_token_ids": pack_u32([token_id for top in tops for token_id, _ in top]),
        "top_logprobs": pack_f32([value for top in tops for _, value in top]),
    }


def score_prompt(
    attach: Attach,
    submit: wire.Submit,
    first_position: int,
    scores: Sequence[Scored],
    *,
    epoch: int | None = None,
) -> None:
    """Send one piece about a prompt."""
    attach.send(
        prompt_logprobs=wire.PromptLogprobBatch(
            handles=pack_u32([submit.handle]),
            epochs=pack_u32([submit.epoch if epoch is None else epoch]),
            first_positions=pack_u32([first_position]),
            counts=pack_u32([len(scores)]),
            **_score_arrays(scores),
        )
    )


def score_whole_prompt(attach: Attach, submit: wire.Submit) -> list[Scored]:
    """Send all that is asked about a prompt: position p has log-probability -p and rank p."""
    scores = prompt_scores(submit)
    score_prompt(attach, submit, 1, scores)
    return scores


def prompt_scores(submit: wire.Submit) -> list[Scored]:
    """Return a score per position from 1: -p, rank p, and as alternatives the tokens 10, 11..."""
    num_top = submit.sampling.prompt_logprobs
    return [
        (-float(p), p, [(10 + i, -0.5 * (i + 1)) for i in range(num_top)])
        for p in range(1, len(unpack_u32(submit.prompt_token_ids)))
    ]


def score_tokens(
    attach: Attach,
    submit: wire.Submit,
    token_ids: Sequence[int],
    scores: Sequence[Scored],
    *,
    choice: int = 0,
) -> None:
    """Send a choice's first tokens with their scores."""
    attach.send(
        tokens=wire.TokenBatch(
            handles=pack_u32([submit.handle]),
            choices=pack_u32([choice]),
            epochs=pack_u32([submit.epoch]),
            first_positions=pack_u32([0]),
            counts=pack_u32([len(token_ids)]),
            token_ids=pack_u32(token_ids),
            **_score_arrays(scores),
        )
    )
