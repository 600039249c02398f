"""Requests made from a few numbers: shared beginnings, several tenants, all kinds of ends."""

import struct
from typing import Any

from simulation.model.naive import EOS
from simulation.processes.client import Ask

from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams

MAX_PROMPT = 26
MAX_OUTPUT = 14
TENANTS = (None, "a", "b")
PREFIX_LENGTHS = (1, 2, 4, 8, 12, 16, 20)


class Numbers:
    """Draws from the numbers of one event."""

    def __init__(self, *values: int) -> None:
        self._state = 1
        for value in values:
            self._state = hash((self._state, value)) & (1 << 61) - 1

    def below(self, sides: int) -> int:
        self._state = hash((self._state, sides)) & (1 << 61) - 1
        return (self._state >> 11) % sides

    def pick(self, options: Any) -> Any:
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent


def salt_of(tenant: str | None, cache_salt: bytes | None) -> bytes:
    """As the scheduler encodes it; written again so that the two are compared."""
    if not tenant and not cache_salt:
        return b""
    name = (tenant or "").encode()
    return struct.pack("<I", len(name)) + name + (cache_salt or b"")


def draw_prompt(numbers: Numbers, *, is_shared: bool) -> tuple[int, ...]:
    """Few distinct beginnings, so that prefixes meet."""
    family = numbers.below(2 if is_shared else 5)
    length = numbers.pick(PREFIX_LENGTHS[3:] if is_shared else PREFIX_LENGTHS)
    prompt = [(7 * family + position) % 13 for position in range(length)]
    prompt += [13 + numbers.below(4) for _ in range(numbers.pick((0, 0, 1, 3, 6)))]
    return tuple(prompt)


def draw_params(numbers: Numbers, num_choices: int) -> SamplingParams:
    max_tokens = numbers.pick((1, 2, 4, 6, 9, MAX_OUTPUT))
    return SamplingParams(
        n=num_choices,
        temperature=1.0,
        seed=numbers.below(1 << 20),
        max_tokens=max_tokens,
        min_tokens=min(max_tokens, numbers.pick((0, 0, 0, 2))),
        stop=("a", "bc") if numbers.chance(15) else (),
        stop_token_ids=(3, 5) if numbers.chance(40) else (),
        logprobs=numbers.pick((0, 2)) if numbers.chance(15) else None,
    )


def draw_ask(
    number: int, numbers: Numbers, *, num_choices: int = 1, is_shared: bool = False, **fields: Any
) -> Ask:
    """Return request `number`; `fields` replace what would be drawn."""
    tenant = numbers.pick(TENANTS)
    cache_salt = b"salt" if numbers.chance(10) else None
    values: dict[str, Any] = {
        "request_id": RequestId(number.to_bytes(16, "little")),
        "prompt": draw_prompt(numbers, is_shared=is_shared),
        "params": draw_params(numbers, num_choices),
        "eos_ids": (EOS,) if numbers.chance(60) else (),
        "tenant": tenant,
        "cache_salt": cache_salt,
        "salt": salt_of(tenant, cache_salt),
        "priority": numbers.pick((0, 0, 0, 0, 1, -1)),
        "deadline": None,
        "windows": (None,),
    }
    return Ask(**{**values, **fields})


def draw_beam_params(numbers: Numbers) -> SamplingParams:
    return SamplingParams(
        n=numbers.pick((1, 2, 2, 3)),
        temperature=0.0,
        seed=numbers.below(1 << 20),
        max_tokens=numbers.pick((1, 2, 4, 6, 9)),
        use_beam_search=True,
        length_penalty=numbers.pick((0.0, 1.0, 2.0, -1.0)),
        early_stopping=numbers.pick((False, True, "never")),
    )
