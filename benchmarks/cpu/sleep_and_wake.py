"""Times of a wake and an update of weights beside that of a plain load, for a checkpoint of the
shape of a 0.5B model.

    python benchmarks/cpu/sleep_and_wake.py --repeats 10

Weights are random. Each round loads the replica in a process of its own, whose imports do not
count, then sleeps and wakes at level 1 and at level 2, and then has the weights of another folder.
The ratio of a round is that of its wake to its load; the table has medians, and the least and the
largest ratio. An update is checked before it, while requests are computed, and that is told apart.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HIDDEN, LAYERS, HEADS, KV_HEADS, INNER, VOCAB = 896, 24, 14, 2, 4864, 151936
CACHE_BYTES = 256 << 20


def one_round(folder: str, other: str, quantization: str) -> None:
    """Print the seconds and bytes of one round as JSON."""
    from pagewire_shared.process import collector
    from pagewire_shared.sleep.state import ALL_TAGS, SleepOrder
    from pagewire_shared.weights.version import STARTED, UpdateOrder, WeightsSource
    from pagewire_worker.config import WorkerConfig
    from pagewire_worker.loading.replica_memory import ReplicaMemory
    from pagewire_worker.serving.weights_check import check_weights

    config = WorkerConfig(
        model=folder,
        enable_sleep_mode=True,
        max_model_len=4096,
        kv_cache_memory=CACHE_BYTES,
        quantization=quantization,
    )
    memory = ReplicaMemory(config)
    began = time.perf_counter()
    memory.load()
    found = {"load": time.perf_counter() - began}
    collector.freeze_gc()
    for level in (1, 2):
        memory.begin_sleep()
        began = time.perf_counter()
        found[f"bytes {level}"] = memory.drop(SleepOrder(level=level))
        found[f"drop {level}"] = time.perf_counter() - began
        memory.begin_wake()
        began = time.perf_counter()
        memory.wake(ALL_TAGS)
        found[f"wake {level}"] = time.perf_counter() - began
    began = time.perf_counter()
    fingerprint = check_weights(config, STARTED, other)
    found["check"] = time.perf_counter() - began
    memory.begin_sleep()
    began = time.perf_counter()
    memory.drop(SleepOrder())
    memory.begin_wake()
    memory.update(UpdateOrder(WeightsSource(path=other, serial=1), fingerprint))
    found["update"] = time.perf_counter() - began
    assert memory.failed_update is None, memory.failed_update
    print(json.dumps(found))


def make_checkpoint(folder: Path) -> None:
    """Write a checkpoint of the shape with random weights in bfloat16."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        vocab_size=VOCAB,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--one-round", nargs=2, metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_round:
        one_round(*options.one_round, options.quantization)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        places = [f"{folder}/old", f"{folder}/new"]
        for place in places:
            make_checkpoint(Path(place))
        flags = ["--one-round", *places, "--quantization", options.quantization]
        rounds = []
        # The first one reads the files into memory, and measures what later starts know.
        for _ in range(options.repeats + 1):
            ran = subprocess.run(
                [sys.executable, __file__, *flags], capture_output=True, text=True, check=True
            )
            rounds.append(json.loads(ran.stdout.strip().splitlines()[-1]))
    rounds = rounds[1:]
    print(f"load: {statistics.median(one['load'] for one in rounds):.2f} s")
    for level in (1, 2):
        ratios = [one[f"wake {level}"] / one["load"] for one in rounds]
        wake = statistics.median(one[f"wake {level}"] for one in rounds)
        drop = statistics.median(one[f"drop {level}"] for one in rounds)
        given = statistics.median(one[f"bytes {level}"] for one in rounds) / 2**20
        print(
            f"level {level}: wake {wake:.2f} s, {statistics.median(ratios):.2f} of a load "
            f"({min(ratios):.2f} to {max(ratios):.2f}); drop {drop:.2f} s, {given:.0f} MiB back"
        )
    ratios = [one["update"] / one["load"] for one in rounds]
    update, check = (statistics.median(one[kind] for one in rounds) for kind in ("update", "check"))
    print(
        f"update: {update:.2f} s, {statistics.median(ratios):.2f} of a load "
        f"({min(ratios):.2f} to {max(ratios):.2f}); checked in {check:.2f} s before it"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
