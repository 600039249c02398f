"""Offline throughput of `LLM.generate` against transformers and the memory's read rate, in one run.

    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b
    python benchmarks/offline.py checkpoints/qwen2.5-0.5b

Prints one table. Each figure is the best of `--repeats`; the ratio columns are what to compare
between machines and versions.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch
from parts.machine import describe, read_bandwidth
from transformers import AutoModelForCausalLM

from pagewire import LLM, SamplingParams


def make_prompts(num_prompts: int, length: int, vocab: int) -> list[list[int]]:
    """Return prompts of random token ids; every run has the same."""
    generator = random.Random(length)
    return [[generator.randrange(vocab) for _ in range(length)] for _ in range(num_prompts)]


def best_seconds(run: Callable[[], object], repeats: int) -> float:
    """Return the shortest time of `repeats` runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def time_transformers(
    folder: Path, prompts: list[list[int]], num_tokens: int, repeats: int, device: str
) -> float:
    """Return the seconds transformers takes to continue all prompts as one batch, in bf16."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    model.to(device)
    inputs = torch.tensor(prompts, device=device)

    def run() -> None:
        with torch.inference_mode():
            model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=num_tokens,
                min_new_tokens=num_tokens,
                do_sample=False,
                pad_token_id=0,
            )

    run()
    return best_seconds(run, repeats)


def time_pagewire(llm: LLM, prompts: list[list[int]], num_tokens: int, repeats: int) -> float:
    """Return the seconds Pagewire takes for the same work."""
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    requests = [{"prompt_token_ids": prompt} for prompt in prompts]

    def run() -> None:
        outputs = llm.generate(requests, params, use_tqdm=False)
        assert all(len(output.outputs[0].token_ids) == num_tokens for output in outputs)

    run()
    return best_seconds(run, repeats)


def main() -> None:
    """Run all batch sizes and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    vocab = json.loads((arguments.checkpoint / "config.json").read_text())["vocab_size"]
    weights = sum(file.stat().st_size for file in arguments.checkpoint.glob("*.safetensors"))
    limit = read_bandwidth(threads) / weights
    print(f"{describe()}; read limit at batch 1: {limit:.1f} tokens/s")
    print(f"{arguments.input_len} tokens in, {arguments.output_len} out, bf16, greedy")
    print("| batch | pagewire tokens/s | transformers tokens/s | ratio | share of the read limit |")
    print("| --- | --- | --- | --- | --- |")
    sizes = [(size, make_prompts(size, arguments.input_len, vocab)) for size in arguments.batches]
    peers = {
        size: time_transformers(
            arguments.checkpoint,
            prompts,
            arguments.output_len,
            arguments.repeats,
            arguments.device,
        )
        for size, prompts in sizes
    }
    # Prefix caching off: repeats would otherwise skip the prefill that the peer pays for.
    with LLM(
        str(arguments.checkpoint),
        dtype="bfloat16",
        device=arguments.device,
        enable_prefix_caching=False,
        max_model_len=4096,
    ) as llm:
        for size, prompts in sizes:
            seconds = time_pagewire(llm, prompts, arguments.output_len, arguments.repeats)
            ours, theirs = (size * arguments.output_len / s for s in (seconds, peers[size]))
            print(
                f"| {size} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} "
                f"| {ours / limit / size:.2f} |"
            )


if __name__ == "__main__":
    main()
