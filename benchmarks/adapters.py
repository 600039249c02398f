"""What adapters cost in a decode step on a CPU, beside the bytes that they add.

    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b
    python benchmarks/adapters.py checkpoints/qwen2.5-0.5b --batch 32 --rank 16

Four sets of sequences decode in turn, step by step: the model alone; each sequence with an adapter
of its own, over the matrices of queries and values, and over all linear layers; and all sequences
with one adapter, over all linear layers. Steps of a round are compared, so that what else the
machine does meets all of them. A share of 1 is what the bytes that adapters add allow; for one
adapter, what the model alone takes.
"""

import argparse
import json
import statistics
import time
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from parts.machine import describe, read_bandwidth
from safetensors.torch import save

from pagewire_shared.adapters.adapter_folder import AdapterContent, check_content
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import NewSequence, StepPlan
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.loader import Replica, load_replica
from pagewire_worker.models.registry import read_plan

ROUNDS = 40
SETS = ("an adapter each, q and v", "an adapter each, all layers", "one adapter, all layers")


def random_adapter(
    folder: Path, rank: int, seed: int, targets: Collection[str] | None
) -> AdapterContent:
    """Return an adapter of the matrices of layers with these last names; None for all."""
    generator = torch.Generator().manual_seed(seed)
    tensors, names = {}, set()
    for linear in AdapterTargets(read_plan(folder)).linears:
        for name, size in linear.spec.parts:
            last = name.rpartition(".")[2]
            if linear.place != "layer" or (targets is not None and last not in targets):
                continue
            shapes = {"A": (rank, linear.spec.num_inputs), "B": (size, rank)}
            for letter, shape in shapes.items():
                values = torch.randn(shape, generator=generator) * 0.01
                tensors[f"base_model.model.{name}.lora_{letter}.weight"] = values.bfloat16()
            names.add(last)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": sorted(names)}
    return AdapterContent(json.dumps(config).encode(), save(tensors))


class Sets:
    """Sets of as many sequences in one replica, which differ in their adapters.

    Args:
        adapters: The adapter slot of each sequence of each set, or None.
    """

    def __init__(
        self, replica: Replica, adapters: Sequence[Sequence[int | None]], context: int
    ) -> None:
        self._runner = replica.model_runner
        self._batch = len(adapters[0])
        self._lengths = [context] * len(adapters)
        self._step_id = 0
        num_blocks = -(-(context + 2 * ROUNDS) // replica.info.cache_groups[0].block_size)
        for slot, adapter in enumerate(chain(*adapters)):
            blocks = range(slot * num_blocks, (slot + 1) * num_blocks)
            request = NewSequence(
                slot=slot,
                request_id=slot.to_bytes(16, "big"),
                choice=0,
                prompt_token_ids=np.random.default_rng(slot).integers(3, 250, context).tolist(),
                emitted_token_ids=[],
                sampling=SamplingParams(temperature=0.0, seed=0, max_tokens=None),
                block_ids=list(blocks),
                adapter_slot=adapter,
            )
            self._run([request], [slot], 0, context)

    def seconds(self, number: int) -> float:
        """Return the seconds of a decode step of a set."""
        slots = [number * self._batch + row for row in range(self._batch)]
        began = time.perf_counter()
        self._run([], slots, self._lengths[number], 1)
        self._lengths[number] += 1
        return time.perf_counter() - began

    def _run(self, new: list[NewSequence], slots: list[int], start: int, num_new: int) -> None:
        self._step_id += 1
        count = len(slots)
        plan = StepPlan(
            generation=0,
            incarnation=0,
            step_id=self._step_id,
            new_sequences=new,
            slots=slots,
            starts=[start] * count,
            num_new_tokens=[num_new] * count,
            samples=[1] * count,
            num_new_blocks=[0] * count,
        )
        result = self._runner.run(plan)
        if result.failure is not None:
            raise SystemExit(result.failure.message)


def main() -> None:
    """Print the seconds of all sets, and the limit of the bytes that adapters add."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    replica = load_replica(
        WorkerConfig(
            model=str(options.checkpoint),
            quantization=options.quantization,
            cpu_threads=options.threads,
            max_model_len=options.context + 2 * ROUNDS + 2,
            max_num_seqs=4 * options.batch,
            max_num_batched_tokens=512,
            kv_cache_memory=1024**3,
            enable_lora=True,
            max_loras=2 * options.batch,
            max_lora_rank=options.rank,
        )
    )
    num_bytes = [fill(replica, options, first) for first in (0, options.batch)]
    first, second = range(options.batch), range(options.batch, 2 * options.batch)
    adapters = [[None] * options.batch, first, second, [options.batch] * options.batch]
    sets = Sets(replica, adapters, options.context)
    rounds = [[sets.seconds(number) for number in range(4)] for _ in range(ROUNDS)][2:]
    bandwidth = read_bandwidth(torch.get_num_threads())
    alone = statistics.median(one[0] for one in rounds)
    print(f"{describe()}; reads {bandwidth / 1e9:.1f} GB/s")
    print(f"the model alone: {alone * 1e3:.1f} ms")
    for number, (name, added) in enumerate(zip(SETS, (*num_bytes, 0), strict=True), 1):
        seconds, ratio, share = map(
            statistics.median,
            zip(
                *(
                    (one[number], one[number] / one[0], (one[0] + added / bandwidth) / one[number])
                    for one in rounds
                ),
                strict=True,
            ),
        )
        print(f"{name}: {seconds * 1e3:.1f} ms, {ratio:.3f} of the model alone", end="; ")
        print(f"{added / 1e6:.0f} MB take {added / bandwidth * 1e3:.1f} ms; share {share:.3f}")


def fill(replica: Replica, options: argparse.Namespace, first: int) -> int:
    """Fill a slot per sequence, from slot `first` on; return the bytes of the adapters.

    The first ones are of queries and values, the others of all linear layers.
    """
    slots, num_bytes = replica.model_runner._adapters, 0
    assert slots is not None
    for number in range(options.batch):
        targets = None if first else ("q_proj", "v_proj")
        content = random_adapter(options.checkpoint, options.rank, number, targets)
        slots.fill(first + number, content, check_content(content, AdapterBounds()))
        num_bytes += content.num_bytes
    return num_bytes


if __name__ == "__main__":
    main()
