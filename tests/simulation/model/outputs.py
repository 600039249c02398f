"""What a worker without a model answers: tokens, log-probabilities and vectors, of what a query
sees through a block table."""

import math
from collections.abc import Callable, Mapping, Sequence

from simulation.model.answers import Slot
from simulation.model.naive import allowed_by, most_likely, sample, score, vector

from pagewire_shared.steps.result import PromptLogprobs, StepResult

Read = Callable[[Sequence[Sequence[int]], int], int]
"""(block tables, end) -> context of a query behind so many positions."""

Row = tuple[int, int, int, int]
"""(slot, start, number of tokens, whether it samples)."""

Alternatives = Sequence[tuple[int, float]]


def tell_prompts(
    slots: Mapping[int, Slot], rows: Sequence[Row], read: Read
) -> PromptLogprobs | None:
    """What was asked about the prompt tokens behind those computed."""
    told = PromptLogprobs()
    for slot, start, count, _ in rows:
        state = slots[slot]
        num_top = state.new.sampling.prompt_logprobs
        end = min(start + count, len(state.new.prompt_token_ids) - 1)
        if num_top is None or end <= start:
            continue
        told.slots.append(slot)
        told.first_positions.append(start + 1)
        told.counts.append(end - start)
        for position in range(start, end):
            context = read(state.tables, position + 1)
            value, rank = score(context, state.tokens[position + 1])
            told.logprobs.append(value)
            told.ranks.append(rank)
            top = most_likely(context, num_top)
            told.num_top.append(len(top))
            told.top_token_ids.extend(token for token, _ in top)
            told.top_logprobs.extend(logprob for _, logprob in top)
    return told if told.slots else None


def pool(state: Slot, start: int, count: int, is_last: int, read: Read) -> bytes:
    """Take what was computed of a sequence that pools; its vector when that was all."""
    pooling = state.new.pooling
    if pooling is None:
        return b""
    contexts = [read(state.tables, end + 1) for end in range(start, start + count)]
    state.pooled = [*state.pooled, *contexts] if pooling.pooling == "mean" else contexts[-1:]
    return vector(state.pooled) if is_last else b""


def sample_token(
    slot: int, state: Slot, end: int, context: int, result: StepResult, tops: list[Alternatives]
) -> None:
    """Let a slot sample behind `end` of its tokens, with what is asked besides."""
    sampling, num_prompt = state.new.sampling, len(state.new.prompt_token_ids)
    position = end - num_prompt
    outputs, emitted = sampling.structured_outputs, state.tokens[num_prompt:end]
    token = sample(
        context,
        seed=sampling.seed or 0,
        choice=state.choice,
        position=position,
        allowed=allowed_by(outputs.text, emitted) if outputs is not None else None,
    )
    num_candidates, wanted = state.new.num_candidates, sampling.logprobs
    result.slots.append(slot)
    result.counts.append(1)
    result.token_ids.append(token)
    if num_candidates:
        # What it sampled is of no use; the scheduler chooses among the likeliest.
        tops.append(most_likely(context, num_candidates))
        result.logprobs.append(math.nan)
        return
    state.tokens.append(token)
    if wanted is None:
        tops.append(())
        result.logprobs.append(math.nan)
    else:
        result.ranks.extend([0] * (len(result.logprobs) - len(result.ranks)))
        known = dict(most_likely(context, 32))
        tops.append(most_likely(context, wanted))
        result.logprobs.append(known[token])
        result.ranks.append(score(context, token)[1])


def add_logprobs(result: StepResult, tops: list[Alternatives]) -> None:
    """Only when somebody asked, as the real worker does."""
    if all(map(math.isnan, result.logprobs)) and not any(tops):
        result.logprobs.clear()
        return
    result.ranks.extend([0] * (len(result.logprobs) - len(result.ranks)))
    for top in tops:
        result.num_top.append(len(top))
        result.top_token_ids.extend(token for token, _ in top)
        result.top_logprobs.extend(value for _, value in top)
