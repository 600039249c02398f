"""Greedy continuations by transformers, the oracle of the golden tests, and how outputs are
compared to it."""

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

NEAR_TIE = 1e-4
"""Two best logits closer than this may come out in either order in float32."""

MAX_NEAR_TIE_FRACTION = 0.01


@dataclass(frozen=True, slots=True)
class Greedy:
    """A greedy continuation with the distance between the two best logits at every step."""

    token_ids: tuple[int, ...]
    margins: tuple[float, ...]


def greedy_by_transformers(
    folder: Path, prompts: Sequence[Sequence[int]], num_tokens: int
) -> list[Greedy]:
    """Continue every prompt in float32 by `num_tokens` tokens, never stopping.

    Prompts of one length run as a batch, so nothing is ever padded.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return greedy_of_model(model, prompts, num_tokens)


def greedy_of_model(
    model: torch.nn.Module, prompts: Sequence[Sequence[int]], num_tokens: int
) -> list[Greedy]:
    """Continue prompts as `greedy_by_transformers` does, by a model that is loaded."""
    torch.set_num_threads(1)
    results: dict[int, Greedy] = {}
    for length in sorted({len(prompt) for prompt in prompts}):
        indices = [i for i, prompt in enumerate(prompts) if len(prompt) == length]
        with torch.inference_mode():
            group = _continue(model, [prompts[i] for i in indices], num_tokens)
        results.update(zip(indices, group, strict=True))
    return [results[i] for i in range(len(prompts))]


def _continue(
    model: torch.nn.Module, prompts: Sequence[Sequence[int]], num_tokens: int
) -> list[Greedy]:
    tokens: list[list[int]] = []
    margins: list[list[float]] = []
    inputs, cache = torch.tensor(prompts), None
    # transformers before 5.24 has the older name only, which later versions warn about.
    names = inspect.signature(model.forward).parameters
    name = "cache" if "cache" in names else "past_key_values"
    for _ in range(num_tokens):
        output = model(input_ids=inputs, use_cache=True, logits_to_keep=1, **{name: cache})
        best = output.logits[:, -1].topk(2)
        tokens.append(best.indices[:, 0].tolist())
        margins.append((best.values[:, 0] - best.values[:, 1]).tolist())
        inputs, cache = best.indices[:, :1], output[name]
    return [
        Greedy(tuple(row), tuple(gaps))
        for row, gaps in zip(zip(*tokens, strict=True), zip(*margins, strict=True), strict=True)
    ]


def assert_equal_but_for_near_ties(
    outputs: Sequence[Sequence[int]], expected: Sequence[Greedy], what: str
) -> None:
    """Fail unless all outputs are equal, but for near ties in at most 1 % of them, which are
    printed."""
    wrong, ties = [], []
    for index, (output, reference) in enumerate(zip(outputs, expected, strict=True)):
        if tuple(output) == reference.token_ids:
            continue
        pairs = zip(output, reference.token_ids, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), len(output))
        is_tie = at < len(reference.margins) and reference.margins[at] < NEAR_TIE
        (ties if is_tie else wrong).append((index, at))
    if ties:
        # A warning, since pytest hides what a passing test prints.
        warnings.warn(f"near ties in {what} at (prompt, position) {ties}", stacklevel=2)
    assert not wrong, f"{what}: {len(wrong)} of {len(outputs)} outputs differ, first at {wrong[:5]}"
    assert len(ties) <= MAX_NEAR_TIE_FRACTION * len(outputs), f"{what}: too many near ties: {ties}"
