"""Requests with all that changes how tokens are chosen, for comparisons with speculation."""

import random
from dataclasses import replace
from typing import Any

from support.cells.exact_cells import Answer, Request
from support.checkpoints.checkpoints import EOS_TOKEN_ID
from support.oracles.exact_requests import VOCAB, draw_requests
from support.oracles.grammars import LANGUAGES

WRONG_EVERY = 7
"""Of so many predicted tokens one is left out, and one is another."""


def draw_mixed(seed: int, num_adapters: int = 0) -> list[Request]:
    """Return requests, every third with a grammar, and with each adapter in turn."""
    dice = random.Random(f"mixed {seed}")
    slots = (None, *range(num_adapters))
    return [
        _mixed(replace(request, adapter_slot=slots[number % len(slots)]), number, dice)
        for number, request in enumerate(draw_requests(seed))
    ]


def _mixed(request: Request, number: int, dice: random.Random) -> Request:
    changes: dict[str, Any] = {
        "n": dice.choice([1, 1, 1, 1, 2, 4]),
        "min_p": dice.choice([0.0, 0.0, 0.02]),
        "presence_penalty": dice.choice([0.0, 0.0, 0.7]),
        "frequency_penalty": dice.choice([0.0, 0.0, 0.4, -0.2]),
        "ignore_eos": number % 2 == 0,
        "prompt_logprobs": dice.choice([None] * 6 + [2]),
    }
    if number % 3 == 1:
        changes["structured_outputs"] = LANGUAGES[number // 3 % len(LANGUAGES)].params
    else:
        changes |= _rules(dice, request.sampling.max_tokens or 1)
    sampling = replace(request.sampling, **changes)
    return replace(request, sampling=sampling, eos_token_ids=(EOS_TOKEN_ID,))


def _rules(dice: random.Random, max_tokens: int) -> dict[str, Any]:
    """Rules about single tokens, which a grammar might contradict."""

    def some(count: int) -> tuple[int, ...]:
        return tuple(dice.sample(range(3, VOCAB), count))

    found: dict[str, Any] = {}
    if dice.random() < 0.3:
        found["stop_token_ids"] = some(25)
        found["min_tokens"] = dice.choice([0, min(8, max_tokens)])
    if dice.random() < 0.2:
        found["logit_bias"] = dict.fromkeys(some(10), 3.0)
    if dice.random() < 0.2:
        found["bad_token_sequences"] = tuple((one,) for one in some(40))
    if dice.random() < 0.2:
        found["allowed_token_ids"] = some(300)
    return found


def predicted(request: Request, answer: Answer, dice: random.Random) -> Request:
    """Return a request whose client expects one of its choices, with mistakes."""
    tokens = list(dice.choice(answer.choices).token_ids)
    expected = [
        dice.randrange(3, VOCAB) if place % WRONG_EVERY == 3 else token
        for place, token in enumerate(tokens)
        if place % WRONG_EVERY != 5
    ]
    return replace(request, predicted=tuple(expected))
