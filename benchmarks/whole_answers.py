"""Measures the CPU time of the frontend and of the scheduler per answer of the offline API.

Compares calls of many requests, as `LLM.generate` makes them, with one stream per prompt. The two
take turns within one run. Prints CPU milliseconds per answer, their ratio and its 95 % bound.

    python benchmarks/whole_answers.py --num-prompts 2000 --num-tokens 8
"""

import argparse
import asyncio
import os
import statistics
import time
from dataclasses import dataclass

from parts.machine import describe
from parts.pairs import mean_with_bound

from pagewire import LLM, SamplingParams
from pagewire.client.events import Delta

STREAMS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Sample:
    """What one way cost: CPU milliseconds per answer by role, and seconds."""

    cpu: dict[str, float]
    seconds: float


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def by_streams(llm: LLM, prompts: list[str], params: SamplingParams) -> list[list[int]]:
    """Ask for each prompt in a stream of its own, for its whole answer at the end."""

    async def one(prompt: str, bound: asyncio.Semaphore) -> list[int]:
        async with bound:
            events = llm.client.complete(prompt, params, final_only=True)
            return [
                token
                async for event in events
                if isinstance(event, Delta)
                for token in event.token_ids
            ]

    async def every() -> list[list[int]]:
        bound = asyncio.Semaphore(STREAMS_AT_ONCE)
        return await asyncio.gather(*(one(prompt, bound) for prompt in prompts))

    return llm.loop.run(every())


def by_batches(llm: LLM, prompts: list[str], params: SamplingParams) -> list[list[int]]:
    """Ask as the offline API does."""
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


def main() -> None:
    """Measure both ways in turn, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-prompts", type=int, default=2000)
    parser.add_argument("--num-tokens", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=10)
    options = parser.parse_args()
    prompts = [f"Story {number} of the" for number in range(options.num_prompts)]
    params = SamplingParams(temperature=0, max_tokens=options.num_tokens, ignore_eos=True)
    ways = {"streams": by_streams, "batches": by_batches}
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    print(describe())
    with LLM(max_num_seqs=256) as llm:
        pids = llm.cluster.pids()
        answers = {name: way(llm, prompts[:200], params) for name, way in ways.items()}
        assert answers["streams"] == answers["batches"], "the two ways give different tokens"
        for pair in range(options.pairs):
            for name in sorted(ways, reverse=pair % 2 == 1):
                before, began = {r: cpu_seconds(p) for r, p in pids.items()}, time.monotonic()
                ways[name](llm, prompts, params)
                seconds = time.monotonic() - began
                spent = {r: cpu_seconds(p) - before[r] for r, p in pids.items()}
                per_answer = {r: s * 1000 / len(prompts) for r, s in spent.items()}
                samples[name].append(Sample(per_answer, seconds))
    report(samples, options.num_prompts * options.num_tokens)


def report(samples: dict[str, list[Sample]], num_tokens: int) -> None:
    """Print medians, and how much more one stream per prompt costs."""
    for name, taken in samples.items():
        rate = num_tokens / statistics.median(one.seconds for one in taken)
        roles = {r: statistics.median(one.cpu[r] for one in taken) for r in sorted(taken[0].cpu)}
        shown = ", ".join(f"{role} {cpu:.2f}" for role, cpu in roles.items())
        print(f"{name}: CPU ms per answer: {shown}; {rate:,.0f} tokens/s")
    for role in ("frontend", "scheduler"):
        pairs = zip(samples["streams"], samples["batches"], strict=True)
        ratios = [one.cpu[role] / other.cpu[role] for one, other in pairs]
        mean, spread = mean_with_bound(ratios)
        print(f"{role}: streams cost {mean:.2f} times as much (95 %: +- {spread:.2f})")


if __name__ == "__main__":
    main()
