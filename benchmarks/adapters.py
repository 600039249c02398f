"""What adapters cost in a decode step on a CPU, beside the bytes that they add.

    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b
    python benchmarks/adapters.py checkpoints/qwen2.5-0.5b --batch 32 --rank 16

Two sets of sequences decode in turn, step by step: the model alone, and each sequence with an
adapter of its own. The pairs are compared, so that what else the machine does meets both.
"""

import argparse
import json
import statistics
import time
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

PAIRS = 40


def random_adapter(folder: Path, rank: int, seed: int) -> AdapterContent:
    """Return an adapter of all matrices that may have one."""
    generator = torch.Generator().manual_seed(seed)
    tensors, names = {}, set()
    for linear in AdapterTargets(read_plan(folder)).linears:
        for name, size in linear.spec.parts:
            shapes = {"A": (rank, linear.spec.num_inputs), "B": (size, rank)}
            for letter, shape in shapes.items():
                values = torch.randn(shape, generator=generator) * 0.01
                tensors[f"base_model.model.{name}.lora_{letter}.weight"] = values.bfloat16()
            names.add(name.rpartition(".")[2])
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": sorted(names)}
    return AdapterContent(json.dumps(config).encode(), save(tensors))


class TwoSets:
    """Sequences of the model alone, and as many with an adapter each, in one replica."""

    def __init__(self, replica: Replica, batch: int, context: int) -> None:
        self._runner = replica.model_runner
        self._batch = batch
        self._lengths = [context, context]
        self._step_id = 0
        num_blocks = -(-(context + 2 * PAIRS) // replica.info.cache_groups[0].block_size)
        for slot in range(2 * batch):
            blocks = range(slot * num_blocks, (slot + 1) * num_blocks)
            request = NewSequence(
                slot=slot,
                request_id=slot.to_bytes(16, "big"),
                choice=0,
                prompt_token_ids=np.random.default_rng(slot).integers(3, 250, context).tolist(),
                emitted_token_ids=[],
                sampling=SamplingParams(temperature=0.0, seed=0, max_tokens=None),
                block_ids=list(blocks),
                adapter_slot=None if slot < batch else slot - batch,
            )
            self._run([request], [slot], 0, context)

    def seconds(self, number: int) -> float:
        """Return the seconds of a decode step of a set: 0 for the model alone."""
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
    """Print the seconds of both sets, and the limit of the bytes that adapters add."""
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
            max_model_len=options.context + 2 * PAIRS + 2,
            max_num_seqs=2 * options.batch,
            max_num_batched_tokens=512,
            kv_cache_memory=1024**3,
            enable_lora=True,
            max_loras=options.batch,
            max_lora_rank=options.rank,
        )
    )
    slots, num_bytes = replica.model_runner._adapters, 0
    assert slots is not None
    for slot in range(options.batch):
        content = random_adapter(options.checkpoint, options.rank, slot)
        slots.fill(slot, content, check_content(content, AdapterBounds()))
        num_bytes += content.num_bytes
    sets = TwoSets(replica, options.batch, options.context)
    pairs = [(sets.seconds(0), sets.seconds(1)) for _ in range(PAIRS)][2:]
    alone, adapted = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(two / one for one, two in pairs)
    bandwidth = read_bandwidth(torch.get_num_threads())
    print(f"{describe()}; reads {bandwidth / 1e9:.1f} GB/s")
    print(f"the model alone: {alone * 1e3:.1f} ms; an adapter each: {adapted * 1e3:.1f} ms")
    print(f"ratio of pairs: {ratio:.3f}; {num_bytes / 1e6:.0f} MB of adapters", end="")
    print(f" take {num_bytes / bandwidth * 1e3:.1f} ms to read")


if __name__ == "__main__":
    main()
