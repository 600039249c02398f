"""What a burst of long prompts costs streams that are under way: with two workers that do
everything, and with one that only prefills and one that only decodes, on the same cores.

    python benchmarks/disaggregation.py                      # some minutes
    python benchmarks/disaggregation.py --model-shape tiny   # a try-out
    python benchmarks/disaggregation.py --sides aggregated

Both deployments stay up and take turns. In a turn some steady streams begin, and when each has some
tokens a burst of long prompts comes at once; gaps between tokens count from then until the last of
the burst has its first token. The model has random weights: the shape of Qwen2.5-0.5B but for a
vocabulary of 2,048, in bfloat16, which CPUs with AVX-512 compute several times faster than float32.
Further flags go to `pagewire serve` on both sides.
"""

import argparse
import contextlib
import dataclasses
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from make_checkpoint import SHAPES, make_config, make_tensors, make_tokenizer
from parts.machine import describe
from parts.timed_stream import TimedStream
from safetensors.torch import save_file

from pagewire.bench.openai_stream import Target
from pagewire.bench.report import Spread, spread

SIDES = {
    # Workers that do everything would compute prompts for each other, too.
    "aggregated": ("--num-workers", "2", "--handoff", "never"),
    "disaggregated": ("--prefill-workers", "1", "--decode-workers", "1"),
}
MODEL = "random"
VOCAB = 2048
STEADY_PROMPT = 32
TOKENS_BEFORE_BURST = 8
_SHAPES = {
    "0.5b": dataclasses.replace(SHAPES["qwen2.5-0.5b"], vocab=VOCAB, context=8192),
    "tiny": dataclasses.replace(SHAPES["tiny"], context=8192),
}


@dataclasses.dataclass(slots=True)
class Turn:
    """One turn of one side.

    Attributes:
        steady: Streams that were under way.
        burst: Long prompts.
        seconds: From the first request to the end of the last.
    """

    steady: list[TimedStream]
    burst: list[TimedStream]
    seconds: float

    @property
    def gaps(self) -> list[float]:
        """Between tokens of the steady streams while prompts of the burst were being computed."""
        begin = min(stream.sent for stream in self.burst)
        end = max(stream.arrivals[0] for stream in self.burst)
        return [gap for stream in self.steady for gap in stream.gaps(begin, end)]

    @property
    def tokens_per_second(self) -> float:
        """Prompts and output."""
        streams = [*self.steady, *self.burst]
        return sum(len(one.prompt) + one.num_tokens for one in streams) / self.seconds


def write_model(folder: Path, shape_name: str) -> None:
    """Write a checkpoint with random weights."""
    shape = _SHAPES[shape_name]
    save_file(make_tensors(shape, seed=0), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(make_config(shape)))
    make_tokenizer(shape.vocab).save(str(folder / "tokenizer.json"))


@contextlib.contextmanager
def deployment(folder: Path, side: str, flags: Sequence[str]) -> Iterator[Target]:
    """One side; ends with the block."""
    command = [sys.executable, "-m", "pagewire", "serve", str(folder), "--port", "0"]
    command += ["--grpc-port", "0", "--served-model-name", MODEL, "--log-level", "warning"]
    command += ["--dtype", "bfloat16", "--kv-offload", "off", "--kv-cache-memory", "1GiB"]
    command += [*flags, *SIDES[side]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        if found is None:
            raise SystemExit(f"{side}: serve did not start")
        yield Target(found[0], MODEL, is_chat=False)
    finally:
        process.terminate()
        process.wait(30)


def take_turn(target: Target, options: argparse.Namespace, seed: int) -> Turn:
    """Begin the steady streams, send the burst when each has some tokens, and wait for all."""
    dice = random.Random(seed)

    def streams(count: int, num_prompt: int, max_tokens: int) -> list[TimedStream]:
        prompts = [[dice.randrange(256, VOCAB) for _ in range(num_prompt)] for _ in range(count)]
        return [TimedStream(prompt, max_tokens) for prompt in prompts]

    steady = streams(options.steady, STEADY_PROMPT, options.steady_tokens)
    burst = streams(options.burst, options.prompt_tokens, options.burst_tokens)
    with ThreadPoolExecutor(len(steady) + len(burst)) as pool:
        begin = time.perf_counter()
        calls = [pool.submit(one.run, target) for one in steady]
        while min(one.num_tokens for one in steady) < TOKENS_BEFORE_BURST:
            for call in calls:
                if call.done():
                    call.result()
            time.sleep(0.01)
        calls += [pool.submit(one.run, target) for one in burst]
        for call in calls:
            call.result()
        return Turn(steady, burst, time.perf_counter() - begin)


def take_turns(options: argparse.Namespace, flags: Sequence[str]) -> dict[str, list[Turn]]:
    """Return the turns of each side; one before them, which warms up, is not counted."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_model(folder, options.model_shape)
        targets = {
            side: stack.enter_context(deployment(folder, side, flags)) for side in options.sides
        }
        warm_up = argparse.Namespace(**{**vars(options), "steady_tokens": 12, "burst": 1})
        for target in targets.values():
            take_turn(target, warm_up, seed=-1)
        turns: dict[str, list[Turn]] = {side: [] for side in targets}
        for number in range(options.rounds):
            for side, target in targets.items():
                turns[side].append(take_turn(target, options, seed=number))
        return turns


def summary(turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the numbers of one side over all its turns: seconds, tokens per second, bytes."""
    entries = [entry for turn in turns for one in turn.burst for entry in one.timeline if entry]
    gaps = [gap for turn in turns for gap in turn.gaps]
    moved = [entry for entry in entries if entry["is_handed_off"]]
    return {
        "ttft": spread([one.ttft for turn in turns for one in turn.burst]),
        "itl": spread(gaps),
        "longest_gap": max(gaps, default=None),
        "tokens_per_second": [turn.tokens_per_second for turn in turns],
        "num_moved": len(moved),
        "num_timelines": len(entries),
        "transfer": spread([entry["transfer_ms"] / 1000 for entry in moved]),
        "transfer_bytes": sum(entry["transfer_bytes"] for entry in moved),
        "transports": sorted({str(entry["transport"]) for entry in moved}),
    }


def show(summaries: dict[str, dict[str, Any]]) -> None:
    """Print the tables."""
    print("| | burst: TTFT p50 / p90 / p99 ms | steady: ITL p50 / p90 / p99 ms |", end="")
    print(" longest gap ms | tokens/s, median (least to most) |")
    print("| --- | --- | --- | --- | --- |")
    for side, found in summaries.items():
        rates = found["tokens_per_second"]
        print(
            f"| {side} | {cells(found['ttft'])} | {cells(found['itl'])} "
            f"| {milliseconds(found['longest_gap'])} "
            f"| {statistics.median(rates):.1f} ({min(rates):.1f} to {max(rates):.1f}) |"
        )
    print()
    print("| | prompts handed off | exposed transfer p50 / p90 / p99 ms | MB each | transport |")
    print("| --- | --- | --- | --- | --- |")
    for side, found in summaries.items():
        if not found["num_timelines"]:
            print(f"| {side} | not told | - | - | - |")
            continue
        each = found["transfer_bytes"] / max(1, found["num_moved"]) / 1e6
        print(
            f"| {side} | {found['num_moved']} of {found['num_timelines']} "
            f"| {cells(found['transfer'])} | {each:.1f} | {', '.join(found['transports']) or '-'} |"
        )


def cells(found: Spread) -> str:
    """Return the percentiles of a duration."""
    return " / ".join(milliseconds(value) for value in found.percentiles.values())


def milliseconds(seconds: float | None) -> str:
    """Return a duration."""
    return "-" if seconds is None else f"{seconds * 1000:.1f}"


def main() -> None:
    """Run all turns and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model-shape", choices=_SHAPES, default="0.5b")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--rounds", type=_count, default=2, help="turns of each side")
    parser.add_argument("--steady", type=_count, default=4, help="streams under way")
    parser.add_argument("--steady-tokens", type=_count, default=256, help="that each generates")
    parser.add_argument("--burst", type=_count, default=8, help="long prompts at once")
    parser.add_argument("--prompt-tokens", type=_count, default=1500, help="of each of these")
    parser.add_argument("--burst-tokens", type=_count, default=8, help="that each generates")
    parser.add_argument("--json", action="store_true", help="all numbers, in seconds")
    options, flags = parser.parse_known_args()
    if options.steady_tokens <= TOKENS_BEFORE_BURST:
        parser.error(f"--steady-tokens must be more than {TOKENS_BEFORE_BURST}")
    summaries = {side: summary(turns) for side, turns in take_turns(options, flags).items()}
    if options.json:
        plain = {
            side: {
                name: dataclasses.asdict(value) if isinstance(value, Spread) else value
                for name, value in found.items()
            }
            for side, found in summaries.items()
        }
        print(json.dumps({"machine": describe(), "options": vars(options), "sides": plain}))
        return
    print(describe())
    show(summaries)


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


if __name__ == "__main__":
    main()
