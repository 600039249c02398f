"""Upper bounds of histogram buckets, in seconds or counts: those of vLLM, by which its dashboards
are made, and ours, which add finer ones below."""

from typing import Final

VLLM_FIRST_TOKEN: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
VLLM_TOKEN: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
VLLM_REQUEST: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
VLLM_STEP: Final = (1.0, *(float(2**power) for power in range(3, 15)))
VLLM_CHOICES: Final = (1.0, 2.0, 5.0, 10.0, 20.0)


def _with(others: tuple[float, ...], finer: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted({*others, *finer}))


FIRST_TOKEN: Final = _with(VLLM_FIRST_TOKEN, (0.0025, 0.025, 0.05))
"""From a cached prompt on a small model to a long prompt on a full server."""

TOKEN: Final = _with(VLLM_TOKEN, (0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.015, 0.02, 0.03, 0.04))

STAGE: Final = _with(VLLM_REQUEST, (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2))
"""A part of a request."""

REQUEST: Final = _with(
    VLLM_REQUEST,
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0),
)
"""A request as a whole."""

STEP: Final = tuple(float(2**power) for power in range(15))
"""Tokens of a step, as schedulers count them."""

TOKENIZE: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

CHOICES: Final = _with(VLLM_CHOICES, (50.0, 100.0))

LENGTH: Final = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))
"""Tokens; vLLM's bounds end at the context of its model, these go on for all models alike."""
