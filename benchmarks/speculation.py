"""What speculation gains where text is copied, and costs where nothing is accepted.

    python benchmarks/speculation.py
    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b
    python benchmarks/speculation.py checkpoints/qwen2.5-0.5b --tasks loop random

Three deployments of one model run the same requests in turn: one without speculation, one that
verifies drafts that are worth their time (adaptive), and one that verifies all (always). The
answers must be the same. Prints the median of the times without, divided by those with: above 1
speculation is faster. Other work on the machine then meets all alike.

| task | what is asked | drafts |
| --- | --- | --- |
| copy | the built-in model copies a list of words out of its prompt | nearly all are right |
| loop | a model goes on greedily with a prompt that repeats | many, once it repeats itself |
| random | a prompt of random tokens, sampled at temperature 1.5 | next to none is right |
| schema | JSON by a schema with a list of objects | keys are forced, or repeat |
| compact | the same without white space | all but the values is forced |
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from parts.machine import describe

from pagewire import LLM, SamplingParams, StructuredOutputsParams

WORDS = [
    "apple",
    "river",
    "stone",
    "cloud",
    "green",
    "table",
    "music",
    "paper",
    "house",
    "light",
    "water",
    "bread",
]
BUILT_IN = "pagewire-builtin"
Run = Callable[[LLM], list[tuple[int, ...]]]


def token_ids(outputs: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the tokens of each answer."""
    return [tuple(one.outputs[0].token_ids) for one in outputs]


def copy(num_at_once: int, num_tokens: int) -> Run:
    """Return a run of chats that ask for a copy."""
    dice = random.Random(1)
    lists = [" ".join(dice.choices(WORDS, k=24)) for _ in range(num_at_once)]
    chats = [[{"role": "user", "content": f"Copy this list: {one}"}] for one in lists]
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens)
    return lambda llm: token_ids(llm.chat(chats, params, use_tqdm=False))


def fill_schema(num_at_once: int, num_tokens: int, *, is_compact: bool) -> Run:
    """Return a run of chats that ask for JSON by a schema."""
    fields = {
        "first_name": {"type": "string", "maxLength": 12},
        "last_name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "occupation": {"enum": ["teacher", "engineer", "gardener"]},
    }
    person = {"properties": fields, "required": [*fields], "additionalProperties": False}
    people = {"type": "array", "minItems": 4, "maxItems": 6, "items": {"type": "object", **person}}
    schema = {"type": "object", "properties": {"people": people}, "required": ["people"]}
    chats = [
        [{"role": "user", "content": f"List the people of town {number} as JSON."}]
        for number in range(num_at_once)
    ]
    outputs = StructuredOutputsParams(
        json={**schema, "additionalProperties": False}, disable_any_whitespace=is_compact
    )
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, structured_outputs=outputs)
    return lambda llm: token_ids(llm.chat(chats, params, use_tqdm=False))


def complete(num_at_once: int, num_tokens: int, *, is_loop: bool) -> Run:
    """Return a run of prompts that repeat, or of random ones that are sampled."""
    dice = random.Random(2)
    prompts = [[dice.randrange(3, 400) for _ in range(8 if is_loop else 64)] for _ in range(64)]
    requests = [{"prompt_token_ids": one * (8 if is_loop else 1)} for one in prompts[:num_at_once]]
    params = SamplingParams(
        temperature=0.0 if is_loop else 1.5, seed=1, max_tokens=num_tokens, ignore_eos=True
    )
    return lambda llm: token_ids(llm.generate(requests, params, use_tqdm=False))


def make_run(task: str, num_at_once: int, num_tokens: int) -> Run:
    """Return the run of a task."""
    if task == "copy":
        return copy(num_at_once, num_tokens)
    if task in ("schema", "compact"):
        return fill_schema(num_at_once, num_tokens, is_compact=task == "compact")
    return complete(num_at_once, num_tokens, is_loop=task == "loop")


def timed(run: Run, llm: LLM) -> tuple[float, list[tuple[int, ...]]]:
    """Return the seconds of a run, and its answers."""
    began = time.perf_counter()
    answers = run(llm)
    return time.perf_counter() - began, answers


def compare(plain: LLM, others: Sequence[LLM], run: Run, num_rounds: int) -> list[float]:
    """Return tokens per second without drafts, and the ratio of each of `others`, as medians."""
    rounds = []
    for number in range(num_rounds + 1):
        llms = [plain, *others]
        order = llms if number % 2 else llms[::-1]
        found = {id(llm): timed(run, llm) for llm in order}
        before, expected = found[id(plain)]
        assert all(found[id(llm)][1] == expected for llm in others), "an answer has changed"
        ratios = [before / found[id(llm)][0] for llm in others]
        if number:  # the first round warms up
            rounds.append([sum(map(len, expected)) / before, *ratios])
    return [statistics.median(values) for values in zip(*rounds, strict=True)]


def main() -> None:
    """Start the deployments and print a row per task and number of requests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=BUILT_IN)
    parser.add_argument("--tasks", nargs="+", default=["copy", "loop", "random"])
    parser.add_argument("--at-once", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--drafts", type=int, default=5)
    parser.add_argument("--method", default="ngram")
    arguments = parser.parse_args()
    print(describe())
    config = {"method": arguments.method, "num_speculative_tokens": arguments.drafts}
    always = {**config, "adaptive": False}
    shared = {"enable_prefix_caching": False, "kv_offload": "off"}
    with (
        LLM(arguments.model, **shared) as plain,
        LLM(arguments.model, speculative_config=config, **shared) as adaptive,
        LLM(arguments.model, speculative_config=always, **shared) as eager,
    ):
        names = f"{'tokens/s':>9} {'adaptive':>9} {'always':>9}"
        print(f"{json.dumps(config)}\n{'task':8} {'at once':>8} {names}")
        for task in arguments.tasks:
            for num_at_once in arguments.at_once:
                run = make_run(task, num_at_once, arguments.tokens)
                rate, *ratios = compare(plain, [adaptive, eager], run, arguments.rounds)
                shown = " ".join(f"{ratio:9.2f}" for ratio in ratios)
                print(f"{task:8} {num_at_once:8} {rate:9.1f} {shown}", flush=True)


if __name__ == "__main__":
    main()
