"""Every rule of sampling, and every log-probability, over HTTP: against transformers' logits and
formulas in numpy."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tokenizers import Tokenizer

from pagewire import AsyncClient
from pagewire.client.events import Delta
from support.cells.clusters import Cluster
from support.oracles.transformers_oracle import Oracle, Row

TOLERANCE = 1e-4
NUM_TOKENS = 24
PROMPTS = [[5 + (index * step) % 500 for index in range(20)] for step in (7, 31, 113)]
VOCAB = 512


@pytest.fixture(scope="module")
def oracle(tiny_checkpoint: Path) -> Oracle:
    return Oracle(tiny_checkpoint)


@pytest.fixture(scope="module")
def free(oracle: Oracle) -> list[list[int]]:
    """What comes of PROMPTS without any rule."""
    return [oracle.greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def http(cluster: Cluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{cluster.http_url}/v1", timeout=60.0) as client:
        yield client


def complete(http: httpx.Client, prompt: Any, **fields: Any) -> list[dict[str, Any]]:
    """Return the choices; greedy, and never ending early, unless told otherwise."""
    body = {"temperature": 0, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    body = {**body, "return_token_ids": True, "prompt": prompt, **fields}
    response = http.post("/completions", json=body)
    assert response.status_code == 200, response.text
    choices: list[dict[str, Any]] = response.json()["choices"]
    return choices


def tokens_of(http: httpx.Client, prompt: Sequence[int], **fields: Any) -> list[int]:
    [choice] = complete(http, prompt, **fields)
    token_ids: list[int] = choice["token_ids"]
    return token_ids


def counts_of(tokens: Sequence[int]) -> Row:
    return np.bincount(np.asarray(tokens, dtype=np.int64), minlength=VOCAB).astype(np.float32)


def excluding(tokens: Sequence[int], row: Row) -> Row:
    row[list(tokens)] = -np.inf
    return row


def test_without_rules(http: httpx.Client, free: list[list[int]]) -> None:
    assert [tokens_of(http, prompt) for prompt in PROMPTS] == free


def test_penalties(http: httpx.Client, oracle: Oracle, free: list[list[int]]) -> None:
    def presence(row: Row, prompt: Sequence[int], output: Sequence[int]) -> Row:
        return row - np.float32(1.5) * (counts_of(output) > 0)

    def frequency(row: Row, prompt: Sequence[int], output: Sequence[int]) -> Row:
        return row - np.float32(0.75) * counts_of(output)

    def repetition(row: Row, prompt: Sequence[int], output: Sequence[int]) -> Row:
        seen = counts_of([*prompt, *output]) > 0
        changed = np.where(row > 0, row / np.float32(1.5), row * np.float32(1.5))
        return np.where(seen, changed, row)

    def all_three(row: Row, prompt: Sequence[int], output: Sequence[int]) -> Row:
        for rule in (repetition, frequency, presence):
            row = rule(row, prompt, output)
        return row

    values = {"presence_penalty": 1.5, "frequency_penalty": 0.75, "repetition_penalty": 1.5}
    rules = dict(zip(values, (presence, frequency, repetition), strict=True))
    cases = [({name: value}, rules[name]) for name, value in values.items()]
    for fields, rule in [*cases, (values, all_three)]:
        found = [tokens_of(http, prompt, **fields) for prompt in PROMPTS]
        assert found == [oracle.greedy(prompt, NUM_TOKENS, rule) for prompt in PROMPTS], fields
        assert found != free, fields


def test_logit_bias(http: httpx.Client, oracle: Oracle, free: list[list[int]]) -> None:
    bias = {free[0][0]: -2.5, 77: 1.5, 300: 2.0}

    def biased(row: Row, *_: Sequence[int]) -> Row:
        for token, value in bias.items():
            row[token] += np.float32(value)
        return row

    given = {str(token): value for token, value in bias.items()}
    found = [tokens_of(http, prompt, logit_bias=given) for prompt in PROMPTS]
    assert found == [oracle.greedy(prompt, NUM_TOKENS, biased) for prompt in PROMPTS]
    assert all(one != other for one, other in zip(found, free, strict=True))


def test_allowed_token_ids(http: httpx.Client, oracle: Oracle, free: list[list[int]]) -> None:
    allowed = list(range(40, 60))
    others = [token for token in range(VOCAB) if token not in allowed]
    for prompt in PROMPTS:
        found = tokens_of(http, prompt, allowed_token_ids=allowed)
        assert found == oracle.greedy(prompt, NUM_TOKENS, lambda row, *_: excluding(others, row))


def test_bad_words(
    http: httpx.Client, oracle: Oracle, free: list[list[int]], tiny_checkpoint: Path
) -> None:
    """One word of one token and one of two, each also with a space before it."""
    tokenizer = Tokenizer.from_file(str(tiny_checkpoint / "tokenizer.json"))
    texts = [tokenizer.decode([token]) for token in free[0]]
    plain = [index for index, text in enumerate(texts) if text.isascii() and text.isalpha()]
    at = next(i for i in range(len(texts) - 1) if {i, i + 1} <= set(plain) and i > 1)
    words = [texts[at] + texts[at + 1], texts[next(i for i in plain if i not in (at, at + 1))]]
    sequences = [tokenizer.encode(word).ids for word in words]
    # vLLM's rule for the form behind a space.
    behind = [tokenizer.encode(f" {word}").ids for word in words]
    for bare, spaced in list(zip(sequences, behind, strict=True)):
        sequences += [spaced] if len(spaced) == len(bare) and spaced[0] != bare[0] else []
    assert {len(one) for one in sequences} >= {1, 2}

    def ruled(row: Row, prompt: Sequence[int], output: Sequence[int]) -> Row:
        for *before, last in sequences:
            if list(output[len(output) - len(before) :]) == before:
                row[last] = -np.inf
        return row

    found = [tokens_of(http, prompt, bad_words=words) for prompt in PROMPTS]
    assert found == [oracle.greedy(prompt, NUM_TOKENS, ruled) for prompt in PROMPTS]
    assert found[0] != free[0]


def test_stop_token_ids_and_min_tokens(
    http: httpx.Client, oracle: Oracle, free: list[list[int]]
) -> None:
    for prompt, tokens in zip(PROMPTS, free, strict=True):
        stop = tokens[4]
        [choice] = complete(http, prompt, stop_token_ids=[stop])
        assert choice["token_ids"] == tokens[: tokens.index(stop) + 1]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)

        def late(row: Row, prompt: Sequence[int], output: Sequence[int], stop: int = stop) -> Row:
            return excluding([stop, 2], row) if len(output) < 10 else row

        found = tokens_of(http, prompt, stop_token_ids=[stop], min_tokens=10)
        assert found == oracle.greedy(prompt, NUM_TOKENS, late, [stop], 10)
        assert len(found) > 10


def test_logprobs_of_prompt_and_output(http: httpx.Client, oracle: Oracle) -> None:
    for prompt in PROMPTS:
        [choice] = complete(http, prompt, temperature=1, seed=4, logprobs=5, prompt_logprobs=3)
        tokens = choice["token_ids"]
        logprobs = oracle.logprobs([*prompt, *tokens])
        own = [logprobs[i - 1, token] for i, token in enumerate([*prompt, *tokens]) if i]
        assert choice["logprobs"]["token_logprobs"] == near(own[len(prompt) - 1 :])
        best = np.sort(logprobs, axis=1)[:, ::-1]
        for number, top in enumerate(choice["logprobs"]["top_logprobs"]):
            # Halves of characters look alike, so there may be fewer than were asked for.
            values = sorted(top.values(), reverse=True)
            wanted = best[len(prompt) - 1 + number]
            assert values[0] == near(wanted[0])
            assert all(np.abs(wanted - value).min() < TOLERANCE for value in values)
        first, *others = choice["prompt_logprobs"]
        assert first is None
        for index, entry in enumerate(others):
            row = logprobs[index]
            ids = {prompt[index + 1], *np.argsort(-row)[:3].tolist()}
            assert set(map(int, entry)) == ids
            for token in ids:
                told = entry[str(token)]
                assert told["logprob"] == near(row[token])
                assert told["rank"] == int((row >= row[token]).sum())


def near(expected: Any) -> Any:
    return pytest.approx(expected, abs=TOLERANCE)


def test_ranks_over_grpc(cluster: Cluster, oracle: Oracle) -> None:
    """The shapes of HTTP have no place for the ranks of an output."""

    async def run() -> list[Any]:
        sampling = {"max_tokens": 10, "seed": 1, "temperature": 1.0, "logprobs": 2}
        async with AsyncClient(cluster.grpc_address) as client:
            events = [event async for event in client.complete(PROMPTS[0], sampling)]
        return [one for event in events if isinstance(event, Delta) for one in event.logprobs]

    told = asyncio.run(run())
    tokens = [one.token_id for one in told]
    rows = oracle.logprobs([*PROMPTS[0], *tokens])[len(PROMPTS[0]) - 1 :]
    assert any(one.rank > 1 for one in told)
    for one, row in zip(told, rows, strict=False):
        assert one.logprob == near(row[one.token_id])
        assert one.rank == int((row >= row[one.token_id]).sum())
        assert [token for token, _ in one.top] == np.argsort(-row)[:2].tolist()


def loglikelihood(choice: dict[str, Any], num_context: int, num_tokens: int) -> tuple[float, bool]:
    """Return what the evaluation harness of EleutherAI reads from an answer (`parse_logprobs` of
    its completions client): the sum over the continuation, and whether it is the greedy one."""
    logprobs = choice["logprobs"]
    part = slice(num_context, num_tokens)
    pairs = zip(logprobs["tokens"][part], logprobs["top_logprobs"][part], strict=True)
    is_greedy = all(token == max(top, key=top.get) for token, top in pairs)
    return sum(logprobs["token_logprobs"][part]), is_greedy


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_loglikelihoods_as_evaluations_ask_for_them(
    http: httpx.Client, oracle: Oracle, free: list[list[int]], max_tokens: int
) -> None:
    """A batch of token ids: greedy continuations, and others whose first token is an unlikely
    letter."""
    letter = 70
    assert letter not in [tokens[0] for tokens in free]
    inputs = [[*prompt, *tokens[:6]] for prompt, tokens in zip(PROMPTS, free, strict=True)]
    inputs += [[*prompt, letter, *tokens[:5]] for prompt, tokens in zip(PROMPTS, free, strict=True)]
    fields = {"echo": True, "logprobs": 1, "max_tokens": max_tokens, "seed": 1234}
    choices = complete(http, inputs, **fields)
    assert len(choices) == len(inputs)
    for number, (tokens, choice) in enumerate(zip(inputs, choices, strict=True)):
        told = choice["logprobs"]
        lengths = {len(told[name]) for name in ("tokens", "token_logprobs", "top_logprobs")}
        assert lengths == {len(tokens) + max_tokens}
        assert told["token_logprobs"][0] is None
        rows = oracle.logprobs(tokens)
        own = [rows[i, token] for i, token in enumerate(tokens[1:])]
        assert told["token_logprobs"][1 : len(tokens)] == near(own)
        num_context = len(PROMPTS[0])
        total, is_greedy = loglikelihood(choice, num_context, len(tokens))
        assert total == pytest.approx(sum(own[num_context - 1 :]), abs=10 * TOLERANCE)
        assert is_greedy == (number < len(PROMPTS))
        if max_tokens:
            assert told["token_logprobs"][-1] == near(rows[-1].max())
