"""Where the time of one decode step on a CPU goes, and the limit next to it.

    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b
    python benchmarks/cpu/decode_step.py checkpoints/qwen2.5-0.5b --batch 1 16 --context 128

Runs the executor of a worker in this process, as its model thread does: the plan is applied, the
batch assembled, the model computed, a token chosen, the result packed. The kernels of a layer are
then run by themselves over the weights of all layers, so that the parts can be compared with the
whole; what is left are barriers between threads and what parts gain from each other's caches.

The limits: bytes at the rate that a sum over 1 GiB reads them, products at the best rate that 512
rows reach.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import NewSequence, StepPlan
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cpu_kernels.backend import BatchArrays, FusedBackend
from pagewire_worker.cpu_kernels.library import TYPES, pointer
from pagewire_worker.cpu_kernels.packing import PackedWeights
from pagewire_worker.loading.loader import Replica, load_replica

sys.path.append(str(Path(__file__).resolve().parents[1]))
from parts.machine import describe, read_bandwidth

REPEATS = 15
MANY_ROWS = 512
MATRICES = ("qkv", "output", "up", "down")
"""Of a dense layer, in their order."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        name: Of the part.
        seconds: Median.
        num_bytes: Read at least.
        num_products: Multiplications and additions, two each.
    """

    name: str
    seconds: float
    num_bytes: float = 0
    num_products: float = 0

    def line(self, bandwidth: float, rate: float, whole: float) -> str:
        """Return it as a line of a markdown table."""
        limit = max(self.num_bytes / bandwidth, self.num_products / rate)
        shown = f"{limit * 1e3:.2f}" if limit else ""
        share = f"{self.seconds / whole:.1%}"
        return f"| {self.name} | {self.seconds * 1e3:.2f} | {share} | {shown} |"


def median(job: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the median seconds of a job."""
    job()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


class Decodes:
    """Sequences of one length in one replica, which decode a token per step.

    Args:
        replica: Runs them.
        batch: How many.
        context: Tokens of each at the beginning.
    """

    def __init__(self, replica: Replica, batch: int, context: int) -> None:
        self._executor = replica.model_runner
        self._batch = batch
        self._length = context
        self._step_id = 1
        self._executor.drop_slots()
        num_blocks = -(-(context + 4 * REPEATS) // replica.info.cache_groups[0].block_size)
        greedy = SamplingParams(temperature=0.0, seed=0, max_tokens=None)
        for slot in range(batch):
            table = list(range(slot * num_blocks, (slot + 1) * num_blocks))
            prompt = np.random.default_rng(slot).integers(3, 250, context).tolist()
            request = NewSequence(
                slot=slot,
                request_id=slot.to_bytes(16, "big"),
                choice=0,
                prompt_token_ids=prompt,
                emitted_token_ids=[],
                sampling=greedy,
                block_ids=table,
            )
            self._run([request], [slot], [0], [context])

    def step(self) -> None:
        """Decode one token of each."""
        slots = list(range(self._batch))
        self._run([], slots, [self._length] * self._batch, [1] * self._batch)
        self._length += 1

    def _run(
        self, requests: list[NewSequence], slots: list[int], starts: list[int], num_new: list[int]
    ) -> None:
        self._step_id += 1
        result = self._executor.run(
            StepPlan(
                generation=0,
                incarnation=0,
                step_id=self._step_id,
                new_sequences=requests,
                slots=slots,
                starts=starts,
                num_new_tokens=num_new,
                samples=[1] * len(slots),
                num_new_blocks=[0] * len(slots),
            )
        )
        if result.failure is not None:
            raise SystemExit(result.failure.message)


class Timed:
    """Adds up the seconds of a method."""

    def __init__(self, backend: FusedBackend, name: str) -> None:
        self.job = getattr(backend, name)
        self.calls: list[float] = []
        self.arguments: tuple[object, ...] = ()
        setattr(backend, name, self)

    def __call__(self, *arguments: object) -> object:
        """Call the method."""
        began = time.perf_counter()
        result = self.job(*arguments)
        self.arguments = arguments
        self.calls.append(time.perf_counter() - began)
        return result


def product_rows(backend: FusedBackend, num_rows: int) -> Iterator[Row]:
    """Yield the products of a step, each over the weights of all layers."""
    layers = backend._decoder.layers
    if len({len(layer.linears) for layer in layers}) > 1:
        raise SystemExit("the layers of this model have different numbers of matrices")
    # Matrices of which every token is an input; experts are part of the rest.
    for place, linears in enumerate(zip(*(layer.linears for layer in layers), strict=True)):
        name = MATRICES[place] if place < len(MATRICES) else f"matrix {place}"
        yield product_row(backend, f"products: {name}, {len(layers)} layers", linears, num_rows)


def product_row(
    backend: FusedBackend, name: str, linears: Sequence[PackedWeights], num_rows: int
) -> Row:
    """Return the seconds of some products with equal shapes."""
    storage = linears[0].storage
    x = torch.randn(num_rows, storage.num_inputs).to(backend._decoder.dtype)
    y = torch.empty(num_rows, storage.num_outputs)
    memory = torch.empty(num_rows * storage.prepared_row_bytes, dtype=torch.uint8)
    kind, structures = TYPES[x.dtype], [linear.structure() for linear in linears]

    def run() -> None:
        for one in structures:
            backend._pool.linear(
                kind, one, pointer(x), num_rows, pointer(memory), pointer(y), storage.num_outputs
            )

    num_weights = len(linears) * storage.num_outputs * storage.num_inputs
    num_bytes = len(linears) * storage.num_bytes
    return Row(name, median(run), num_bytes, 2 * num_weights * num_rows)


def attention_row(backend: FusedBackend, ran: StepBatch) -> Row:
    """Return the seconds of attention over a batch that was run."""
    model, arrays, scratch = backend._model, BatchArrays(ran), backend._scratch
    num_layers = len(backend._decoder.layers)

    def run() -> None:
        for layer in backend._operations:
            backend._pool.attend(model, arrays.structure, scratch.structure, layer.attention)

    shape = backend._decoder.plan.attention
    per_token = 2 * shape.num_kv_heads * shape.head_dim * backend._decoder.dtype.itemsize
    num_bytes = int(ran.attention.seq_lens.sum()) * per_token * num_layers
    return Row(f"attention, {num_layers} layers", median(run), num_bytes)


def table(replica: Replica, batch: int, context: int, bandwidth: float) -> str:
    """Return the table of one batch size."""
    backend = replica.model_runner.backend
    assert isinstance(backend, FusedBackend), "the kernels do not run this model here"
    rate = best_rate(backend)
    decodes = Decodes(replica, batch, context)
    forward, greedy = Timed(backend, "forward"), Timed(backend, "greedy")
    whole = median(decodes.step)
    inside = [statistics.median(one.calls[-REPEATS:]) for one in (forward, greedy)]
    backend.forward, backend.greedy = forward.job, greedy.job  # type: ignore[method-assign]
    products = list(product_rows(backend, batch))
    (ran,) = forward.arguments
    assert isinstance(ran, StepBatch)
    attention = attention_row(backend, ran)
    rest = inside[0] - sum(row.seconds for row in products) - attention.seconds
    vocabulary = backend._decoder.vocabulary.storage
    rows = [
        *products,
        attention,
        Row("the rest of the layers: norms, rotary, KV writes, barriers", rest),
        Row(
            "products: vocabulary, with the choice of the token",
            inside[1],
            vocabulary.num_bytes,
            2 * vocabulary.num_outputs * vocabulary.num_inputs * batch,
        ),
        Row("the plan, the batch and the result, in Python", whole - sum(inside)),
    ]
    total = Row(
        "**step**",
        whole,
        sum(row.num_bytes for row in rows),
        sum(row.num_products for row in rows),
    )
    lines = [row.line(bandwidth, rate, whole) for row in (*rows, total)]
    return "\n".join(["| part | ms | share | limit ms |", "| --- | --- | --- | --- |", *lines])


def best_rate(backend: FusedBackend) -> float:
    """Return the products per second of one layer with many rows."""
    *_, last = backend._decoder.layers[0].linears
    row = product_row(backend, "", [last], MANY_ROWS)
    return row.num_products / row.seconds


def main() -> None:
    """Print a table per batch size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    replica = load_replica(
        WorkerConfig(
            model=str(options.checkpoint),
            cpu_backend="fused",
            quantization=options.quantization,
            cpu_threads=options.threads,
            max_model_len=options.context + 8 * REPEATS,
            max_num_seqs=max(options.batch),
            max_num_batched_tokens=max(MANY_ROWS, options.context),
            kv_cache_memory=1024**3,
        )
    )
    bandwidth = read_bandwidth(torch.get_num_threads())
    print(f"{describe()}; reads {bandwidth / 1e9:.1f} GB/s")
    for batch in options.batch:
        print(f"\n{batch} sequences of {options.context} tokens:\n")
        print(table(replica, batch, options.context, bandwidth))


if __name__ == "__main__":
    main()
