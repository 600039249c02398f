"""Whether what a request gets depends on what it is batched with: bit by bit.

    python benchmarks/gpu/batch_invariance.py

Random requests run alone, a step at a time, and then again and again among each other: in random
order, as many at once as chance has it, in chunks of random size, until enough steps have mixed
prompts and decodes, or time is up. Tokens and log-probabilities must be the same bits. Exact mode
(`--linear-backend fixed-tile` with `--attention-backend triton`) is what has to pass; where this
version has no such mode, or with `--usual`, it says how often results differ without it.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import command
from engine import Answer, Engine, Request
from replicas import base_settings, load
from report import Report, Row
from shapes import Shape

from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.config import LINEAR_BACKENDS
from pagewire_worker.loading.loader import Replica

EXACT_LINEAR = "fixed-tile"


def draw_requests(dice: random.Random, count: int, longest: int, vocab: int) -> list[Request]:
    """Return requests with prompts and outputs of up to `longest` tokens each."""
    requests = []
    for _ in range(count):
        prompt = [dice.randrange(vocab - 2) for _ in range(dice.randint(1, longest))]
        sampling = SamplingParams(
            temperature=dice.choice([0.0, 0.6, 1.0]),
            seed=dice.getrandbits(32),
            max_tokens=dice.randint(1, longest),
            ignore_eos=True,
            logprobs=0,
        )
        requests.append(Request(prompt, sampling))
    return requests


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a worker's settings: exact ones where there are any and they are wanted."""
    more = {}
    if EXACT_LINEAR in LINEAR_BACKENDS and not arguments.usual:
        more["linear_backend"] = EXACT_LINEAR
    return base_settings(
        max_num_seqs=arguments.requests,
        max_model_len=2 * arguments.longest + 1,
        max_num_batched_tokens=4 * arguments.longest + arguments.requests,
        steps_in_flight=2,
        **({"kv_cache_memory": 8 * 1024**2} if command.IS_TOY else {}),
        **more,
    )


def difference(alone: Answer, mixed: Answer) -> str | None:
    """Return in what two answers differ: tokens, log-probabilities, or nothing."""
    if alone.token_ids != mixed.token_ids:
        return "tokens"
    return None if alone.logprobs == mixed.logprobs else "logprobs"


def compare(
    replica: Replica, requests: list[Request], num_mixed: int, longest: int, minutes: float
) -> Row:
    """Run until `num_mixed` steps have mixed prompts and decodes; return the counts."""
    deadline = time.monotonic() + 60 * minutes
    dice = random.Random(1)
    alone = Engine(replica).run(requests, num_at_once=1)
    counts = {"tokens": 0, "logprobs": 0}
    num_done = num_steps = num_answers = 0
    while num_done < num_mixed and time.monotonic() < deadline:
        engine = Engine(replica, max_num_batched_tokens=dice.randint(len(requests), 4 * longest))
        order = dice.sample(range(len(requests)), len(requests))
        at_once = dice.randint(2, len(requests))
        answers = engine.run([requests[index] for index in order], num_at_once=at_once)
        for index, answer in zip(order, answers, strict=True):
            found = difference(alone[index], answer)
            if found is not None:
                counts[found] += 1
        num_done += engine.num_mixed_steps
        num_steps += engine.num_steps
        num_answers += len(answers)
    return {
        "mixed batches": num_done,
        "steps": num_steps,
        "answers": num_answers,
        "other tokens": counts["tokens"],
        "same tokens, other log-probabilities": counts["logprobs"],
    }


def measure(shape: Shape, arguments: argparse.Namespace) -> tuple[str, Row]:
    """Return what the model runs on, and the counts."""
    with tempfile.TemporaryDirectory() as folder:
        replica = load(shape, Path(folder), settings_of(arguments))
    requests = draw_requests(random.Random(0), arguments.requests, arguments.longest, shape.vocab)
    backend = replica.model_runner.backend
    mode = f"{backend.kernel_set}; promises to be exact: {'yes' if backend.is_exact else 'no'}"
    return mode, compare(
        replica, requests, arguments.mixed_batches, arguments.longest, arguments.minutes
    )


def main() -> None:
    """Print a table; the exit code is 1 where an exact mode did not keep its promise."""
    toy = command.IS_TOY
    parser = command.make_parser(__doc__)
    command.add_shapes(parser, ["qwen3-0.6b"])
    parser.add_argument("--mixed-batches", type=int, default=2 if toy else 10_000)
    parser.add_argument("--requests", type=int, default=3 if toy else 48)
    parser.add_argument("--longest", type=int, default=4 if toy else 160, help="tokens")
    parser.add_argument("--minutes", type=float, default=8.0, help="at most, after the start")
    parser.add_argument("--usual", action="store_true", help="not in exact mode")
    arguments = parser.parse_args()
    report = Report(arguments, command.device())
    if toy:
        report.note(
            "The interpreter multiplies by numpy, which sums in other orders for other sizes: "
            "differences there say nothing of a device."
        )
    is_broken = False
    for shape in command.shapes_of(arguments):
        mode, counts = command.in_fresh_process(measure, shape, arguments)
        report.note(f"{shape.name}: {mode}")
        report.add(f"{shape.name}: the same requests alone and mixed (row 11)", [counts])
        num_different = sum(v for k, v in counts.items() if "other" in k and isinstance(v, int))
        is_broken |= num_different > 0 and mode.endswith("yes")
    if is_broken and not toy:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
