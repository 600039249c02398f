"""What a model says under sampling parameters: plain formulas over transformers' logits."""

from collections.abc import Collection, Sequence
from typing import Any

import torch

from pagewire_shared.sampling.params import SamplingParams
from support.oracles.plain_sampler import PlainRow, choose


def expected_tokens(
    model: Any,
    prompt: Sequence[int],
    output: Sequence[int],
    sampling: SamplingParams,
    *,
    choice: int = 0,
    eos: Collection[int] = (),
) -> list[int]:
    """Return what should stand at every place of `output`, given what stands before it."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *output]])).logits[0].tolist()
    rows = (
        PlainRow(logits[len(prompt) + place - 1], sampling, prompt, output[:place], choice, eos=eos)
        for place in range(len(output))
    )
    return [choose(row).token_id for row in rows]


def ruled_params(number: int) -> SamplingParams:
    """Return parameters of which every one changes something, different ones by number."""
    likely = [(17 * number + 5 * one) % 512 for one in range(20)]
    pairs = tuple((one, other) for one in likely[:12] for other in likely[:12:2])
    triples = tuple((one, likely[1], other) for one in likely[:8] for other in likely[:8])
    return SamplingParams(
        max_tokens=None,
        ignore_eos=True,
        seed=1000 + number,
        temperature=(0.0, 1.0, 0.7, 1.5)[number % 4],
        top_k=(0, 40)[number % 2],
        top_p=(1.0, 0.95, 0.8)[number % 3],
        min_p=(0.0, 0.01)[number % 2],
        repetition_penalty=(1.3, 1.0, 0.8)[number % 3],
        frequency_penalty=(0.8, 0.0, 0.4, -0.1)[number % 4],
        presence_penalty=(0.0, 0.9)[number % 2],
        logit_bias=dict.fromkeys(likely, 4.0),
        bad_token_sequences=(*pairs, *triples, *((one,) for one in range(number % 5, 512, 9))),
        allowed_token_ids=tuple(range(number % 3, 512, 2)) if number % 2 else (),
    )
