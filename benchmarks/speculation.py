"""What speculation gains where text is copied, and costs where nothing is accepted.

    python benchmarks/speculation.py
    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b
    python benchmarks/speculation.py checkpoints/qwen2.5-0.5b --tasks loop random

    python benchmarks/speculation.py --cost --at-once 1 16 64 --rounds 10 --method suffix

    python benchmarks/speculation.py --predict checkpoints/qwen2.5-0.5b --method suffix

Three deployments of one model run the same requests in turn: one without speculation, one that
verifies drafts that are worth their time (adaptive), and one that verifies all (always). The
answers must be the same. Prints the median of the times without, divided by those with: above 1
speculation is faster. Other work on the machine then meets all alike.

With --cost, the task is random, with other prompts and seeds in each round, so that no draft is
right. Compared is the CPU time of the worker: adaptive by without, with 95 % bounds of the mean.
Two processes differ by some percent, also without speculation, so --starts N starts both N times;
the bound is then that of the means of starts.

With --predict, the gain of another model is computed: how many drafts are right is measured with
one stream of MODEL, and how long steps of 1 to 1 + DRAFTS rows take with the checkpoint that is
named (parts/draft_gains.py has the formula). Its weights may be random.

| task | what is asked | drafts |
| --- | --- | --- |
| copy | the built-in model copies a list of words out of its prompt | nearly all are right |
| loop | a model goes on greedily with a prompt that repeats | many, once it repeats itself |
| random | a prompt of random tokens, sampled at temperature 1.5 | next to none is right |
| schema | JSON by a schema with a list of objects | keys are forced, or repeat |
| compact | the same without white space | all but the values is forced |
| story | the built-in model tells stories, sampled at temperature 0.7 | those of a draft model |
"""

import argparse
import contextlib
import functools
import json
import random
import re
import statistics
import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import torch
from parts.draft_gains import Acceptance, speedup
from parts.machine import describe
from parts.pairs import mean_with_bound

from pagewire import LLM, SamplingParams, StructuredOutputsParams
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.loader import load_replica
from pagewire_worker.loading.token_budget import probe_batch

SHARED: dict[str, Any] = {"enable_prefix_caching": False, "kv_offload": "off"}

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
NUM_MEASURED = 30
"""Steps of each number of rows, of which the shortest counts."""
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


def tell(num_at_once: int, num_tokens: int) -> Run:
    """Return a run of chats that ask for a story each."""
    heroes = ["fox", "king", "girl", "sailor", "bear", "farmer", "bird", "baker"]
    chats = [
        [{"role": "user", "content": f"Tell me a story about a {heroes[number % len(heroes)]}."}]
        for number in range(num_at_once)
    ]
    params = [
        SamplingParams(temperature=0.7, seed=number, max_tokens=num_tokens)
        for number in range(num_at_once)
    ]
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


def complete(num_at_once: int, num_tokens: int, *, is_loop: bool, seed: int = 2) -> Run:
    """Return a run of prompts that repeat, or of random ones that are sampled."""
    dice = random.Random(seed)
    prompts = [[dice.randrange(3, 400) for _ in range(8 if is_loop else 64)] for _ in range(64)]
    requests = [{"prompt_token_ids": one * (8 if is_loop else 1)} for one in prompts[:num_at_once]]
    params = SamplingParams(
        temperature=0.0 if is_loop else 1.5, seed=seed, max_tokens=num_tokens, ignore_eos=True
    )
    return lambda llm: token_ids(llm.generate(requests, params, use_tqdm=False))


def make_run(task: str, num_at_once: int, num_tokens: int) -> Run:
    """Return the run of a task."""
    if task == "copy":
        return copy(num_at_once, num_tokens)
    if task == "story":
        return tell(num_at_once, num_tokens)
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


def cpu_seconds(llm: LLM) -> float:
    """Return the CPU time of all threads of the workers so far."""
    pids = llm.cluster.pids("worker").values()
    # The clock of a process, as clock_getcpuclockid makes it of its id.
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def cost(
    plain: LLM, other: LLM, make: Callable[[int], Run], num_rounds: int
) -> tuple[float, float]:
    """Return the CPU time of `other` by that of `plain`: mean of pairs, and its 95 % bound."""
    ratios = []
    for number in range(num_rounds + 1):
        run, seconds = make(number), {}
        for llm in (plain, other) if number % 2 else (other, plain):
            before = cpu_seconds(llm)
            run(llm)
            seconds[id(llm)] = cpu_seconds(llm) - before
        if number:  # the first round warms up
            ratios.append(seconds[id(other)] / seconds[id(plain)])
    return mean_with_bound(ratios)


def _random(num_at_once: int, num_tokens: int, seed: int) -> Run:
    return complete(num_at_once, num_tokens, is_loop=False, seed=seed)


def show_costs(arguments: argparse.Namespace, config: dict[str, Any]) -> None:
    """Print the ratio of CPU times per number of requests, after each start."""
    ratios: dict[int, list[float]] = {num_at_once: [] for num_at_once in arguments.at_once}
    for number in range(arguments.starts):
        with contextlib.ExitStack() as stack:
            configs = [None, config] if number % 2 else [config, None]
            started = {
                one is None: stack.enter_context(
                    LLM(arguments.model, speculative_config=one, **SHARED)
                )
                for one in configs
            }
            for num_at_once, found in ratios.items():
                make = functools.partial(_random, num_at_once, arguments.tokens)
                ratio, bound = cost(started[True], started[False], make, arguments.rounds)
                found.append(ratio)
                if number:
                    ratio, bound = mean_with_bound(found)
                what = f"{number + 1} starts: CPU time {ratio:.3f} +- {bound:.3f}"
                print(f"random   {num_at_once:8} {what}", flush=True)


def counters(port: int) -> dict[str, float]:
    """Return the counters of drafts of the worker with metrics at `port`, by name and place."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r"^vllm:spec_decode_(\w+)_total\{(.*)\} (\S+)$", text, re.MULTILINE)
    places = [
        (name, re.search(r'position="(\d+)"', labels), value) for name, labels, value in found
    ]
    return {name + (place[1] if place else ""): float(value) for name, place, value in places}


def acceptance(eager: LLM, run: Run, port: int, most: int) -> Acceptance:
    """Return how many drafts of a run are right."""
    before = counters(port)
    num_tokens = sum(len(answer) - 1 for answer in run(eager))  # a prompt gives the first token
    after = counters(port)
    more = {name: int(value - before.get(name, 0.0)) for name, value in after.items()}
    right_at = [more.get(f"num_accepted_tokens_per_pos{place}", 0) for place in range(most)]
    return Acceptance(num_tokens, more["num_drafts"], right_at)


@torch.inference_mode()
def row_seconds(folder: str, most: int) -> list[float]:
    """Return the least seconds of steps of 1 to 1 + `most` rows, which are measured in turn."""
    replica = load_replica(
        WorkerConfig(
            model=folder,
            device="cpu",
            max_num_seqs=1,
            max_model_len=256,
            max_num_batched_tokens=256,
            kv_cache_memory=256 * 1024**2,
        )
    )
    backend = replica.model_runner.backend
    batches = [probe_batch(backend, rows, torch.arange(rows)) for rows in range(1, 2 + most)]
    seconds = [float("inf")] * len(batches)
    for _ in range(NUM_MEASURED):
        for index, batch in enumerate(batches):
            began = time.perf_counter()
            backend.greedy(backend.forward(batch))
            seconds[index] = min(seconds[index], time.perf_counter() - began)
    return seconds


def show_predictions(arguments: argparse.Namespace, config: dict[str, Any]) -> None:
    """Print how long steps take, and the gain that is computed per task and number of drafts."""
    seconds = row_seconds(arguments.predict, arguments.drafts)
    drafts = range(1, 1 + arguments.drafts)
    print(f"{arguments.predict}: a step of 1 row takes {1000 * seconds[0]:.1f} ms; relative to it")
    print(f"{'rows':26}" + "".join(f"{1 + count:7}" for count in drafts))
    print(f"{'time':26}" + "".join(f"{one / seconds[0]:7.2f}" for one in seconds[1:]))
    print(f"{'task':8} {'drafted':>8} {'right':>8}" + "".join(f"{count:7}" for count in drafts))
    always = {**config, "adaptive": False}
    port = arguments.metrics_port
    with LLM(arguments.model, speculative_config=always, metrics_port=port, **SHARED) as eager:
        for task in arguments.tasks:
            run = make_run(task, 1, arguments.tokens)
            # The metrics of frontend, scheduler and worker are on ports in a row.
            found = acceptance(eager, run, port + 2, arguments.drafts)
            gains = [speedup(found, count, lambda rows: seconds[rows - 1]) for count in drafts]
            part = found.num_drafted / found.num_steps
            right = sum(found.right_at) / max(1, found.num_drafted)
            shown = "".join(f"{gain:7.2f}" for gain in gains)
            print(f"{task:8} {part:8.2f} {right:8.2f}{shown}", flush=True)


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
    parser.add_argument("--draft", help="folder of a draft model or head")
    parser.add_argument("--cost", action="store_true", help="compare CPU time")
    parser.add_argument("--starts", type=int, default=1, help="of both, for --cost")
    parser.add_argument("--predict", metavar="FOLDER", help="compute the gain for a checkpoint")
    parser.add_argument("--metrics-port", type=int, default=9460, help="first port, for --predict")
    arguments = parser.parse_args()
    print(describe())
    config = {"method": arguments.method, "num_speculative_tokens": arguments.drafts}
    if arguments.draft:
        config["model"] = arguments.draft
    if arguments.predict:
        print(json.dumps(config))
        show_predictions(arguments, config)
        return
    print(json.dumps(config))
    if arguments.cost:
        show_costs(arguments, config)
        return
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(LLM(arguments.model, **SHARED))
        adaptive = stack.enter_context(LLM(arguments.model, speculative_config=config, **SHARED))
        always = {**config, "adaptive": False}
        eager = stack.enter_context(LLM(arguments.model, speculative_config=always, **SHARED))
        print(f"{'task':8} {'at once':>8} {'tokens/s':>9} {'adaptive':>9} {'always':>9}")
        for task in arguments.tasks:
            for num_at_once in arguments.at_once:
                run = make_run(task, num_at_once, arguments.tokens)
                rate, *ratios = compare(plain, [adaptive, eager], run, arguments.rounds)
                shown = " ".join(f"{ratio:9.2f}" for ratio in ratios)
                print(f"{task:8} {num_at_once:8} {rate:9.1f} {shown}", flush=True)


if __name__ == "__main__":
    main()
