"""What a step on CUDA costs its host: the worker's own code over a device that computes nothing.

Plans go through slots, batch, static inputs, block tables, the decoder layer by layer or the replay
of a graph, sampler and readback. Counted is what a device would be asked for; timed is the CPU time
of the process, without what CUDA's driver and torch's allocator take for each of these.
"""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from shapes import SHAPES, Shape, write_checkpoint
from torch import Tensor

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import NewSequence, StepPlan
from pagewire_worker.attention.triton import TritonAttention
from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.backend.backend import DecodeBounds
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.batch.slots import SlotLimits, SlotTable
from pagewire_worker.checkpoint.random_weights import RandomWeights
from pagewire_worker.cuda import sampler
from pagewire_worker.cuda.backend import CudaBackend
from pagewire_worker.cuda.decode_graphs import DecodeGraphs
from pagewire_worker.cuda.triton_decoder import TritonDecoder, load_triton_decoder
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.kv.layer_watch import LayerCalls
from pagewire_worker.layers.linear import LinearKind
from pagewire_worker.models.linear_loader import LinearLoader
from pagewire_worker.models.registry import read_plan
from pagewire_worker.models.torch_backend import TorchBackend
from pagewire_worker.runner.model_runner import ModelRunner
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask
from pagewire_worker.sampling.sampling_table import SamplingRows
from prediction.host_figures import HostStep
from prediction.no_device import (
    CountedOperators,
    Counts,
    NoGraphs,
    NoLinear,
    NoReadback,
    no_device,
)

BLOCK_SIZE, CONTEXT, MAX_MODEL_LEN, MAX_TOKENS = 16, 640, 2048, 2048
NUM_STEPS, NUM_WARM_UPS, REPEATS = 20, 4, 7
FEW_LAYERS = 4
"""Of the shorter model that is timed as well: the difference is that of the other layers."""

CPU = torch.device("cpu")
GREEDY = SamplingParams(temperature=0.0, max_tokens=None)
SAMPLED = SamplingParams(temperature=0.6, seed=1, max_tokens=None)


@dataclass(frozen=True, slots=True)
class Work:
    """What every step does: a token of each of `num_decodes` sequences, and `chunk` tokens of a
    prompt that begins and ends in it."""

    num_decodes: int
    chunk: int = 0
    sampling: SamplingParams = GREEDY
    is_captured: bool = True


CASES = {
    "captured, 1": Work(1),
    "captured, 64": Work(64),
    "captured, 256": Work(256),
    "captured, 256, sampled": Work(256, sampling=SAMPLED),
    "eager, 1": Work(1, is_captured=False),
    "eager, 64": Work(64, is_captured=False),
    "eager, 256": Work(256, is_captured=False),
    "mixed, 512 beside 7": Work(7, chunk=512),
    "prompt of 128": Work(0, chunk=128),
}


def measure_steps(shape: Shape = SHAPES["qwen3-0.6b"]) -> dict[str, HostStep]:
    """Return what each of CASES takes, in half a minute."""
    torch.set_num_threads(1)
    found = {}
    for name, work in CASES.items():
        long = measure_step(shape, work)
        short = measure_step(replace(shape, layers=FEW_LAYERS), work)
        each = max(long.python_us - short.python_us, 0.0) / (shape.layers - FEW_LAYERS)
        found[name] = replace(long, layer_us=round(each, 1))
    return found


def count_steps(shape: Shape) -> dict[str, HostStep]:
    """Return what each of CASES asks a device for, without times."""
    return {name: measure_step(shape, work, repeats=0) for name, work in CASES.items()}


def narrow(shape: Shape) -> Shape:
    """Return `shape` with sizes that change nothing of what the host does."""
    return replace(shape, hidden=64, intermediate=64, head_dim=16, vocab=320)


def measure_step(shape: Shape, work: Work, repeats: int = REPEATS) -> HostStep:
    """Return what one kind of step takes with all layers of `shape`: the least of some runs."""
    with no_device() as counts, torch.inference_mode():
        steps = Steps(narrow(shape), work, counts)
        steps.run(NUM_WARM_UPS)
        counted = steps.counted()
        times = []
        for _ in range(repeats):
            began = time.process_time()
            steps.run(NUM_STEPS)
            times.append((time.process_time() - began) / NUM_STEPS)
    return replace(counted, python_us=round(min(times, default=0.0) * 1e6, 1))


class Steps:
    """An executor over no device, and the plans that it runs."""

    def __init__(self, shape: Shape, work: Work, counts: Counts) -> None:
        self._work, self._counts = work, counts
        self._graphs = NoGraphs(counts)
        self._executor = _executor(shape, work, counts, self._graphs)
        # Staggered, so that every step begins as many blocks as in the long run.
        self._ends = CONTEXT + np.arange(work.num_decodes) % BLOCK_SIZE
        self._num_blocks = -(-self._ends // BLOCK_SIZE)
        self._step_id = 0

    def run(self, num_steps: int) -> None:
        """Run so many steps; the first one installs the sequences."""
        for _ in range(num_steps):
            result = self._executor.run(self._plan())
            assert result.failure is None, result.failure

    def counted(self) -> HostStep:
        """Run steps for a whole round of blocks and return what they ask for, each on average."""
        before = self._counts.so_far()
        with CountedOperators(self._counts):
            self.run(BLOCK_SIZE)
        each = {
            name: round((count - before[name]) / BLOCK_SIZE, 2)
            for name, count in self._counts.so_far().items()
        }
        captured = self._graphs.captured
        return HostStep(**each, graph_launches=captured[0] if each["graphs"] else 0)

    def _plan(self) -> StepPlan:
        self._step_id += 1
        count, chunk = self._work.num_decodes, self._work.chunk
        is_first = self._step_id == 1
        new = [self._request(slot, int(self._ends[slot])) for slot in range(count) if is_first]
        if is_first:
            self._ends = self._ends - 1
        needed = -(-(self._ends + 1) // BLOCK_SIZE)
        grown = np.zeros(count, np.int64) if is_first else needed - self._num_blocks
        self._num_blocks = needed
        slots, starts = list(range(count)), self._ends.tolist()
        lengths, num_new = [1] * count, grown.tolist()
        freed = []
        if chunk:
            new.append(self._request(count, chunk))
            freed = [] if is_first else [count]
            slots, starts = [*slots, count], [*starts, 0]
            lengths, num_new = [*lengths, chunk], [*num_new, 0]
        self._ends = self._ends + 1
        return StepPlan(
            generation=0,
            incarnation=0,
            step_id=self._step_id,
            freed_slots=freed,
            new_sequences=new,
            slots=slots,
            starts=starts,
            num_new_tokens=lengths,
            samples=[1] * len(slots),
            num_new_blocks=num_new,
            new_block_ids=[0] * sum(num_new),
        )

    def _request(self, slot: int, num_tokens: int) -> NewSequence:
        return NewSequence(
            slot=slot,
            request_id=slot.to_bytes(16, "little"),
            choice=0,
            prompt_token_ids=[1] * num_tokens,
            emitted_token_ids=[],
            sampling=self._work.sampling,
            block_ids=[0] * -(-num_tokens // BLOCK_SIZE),
        )


class _Backend(CudaBackend):
    """Chooses token 0, since no kernel does."""

    def greedy(self, hidden: Tensor, adapters: AdapterRows | None = None) -> SampledTokens:
        """Return what the kernels would have written to, set to 0."""
        return _first_tokens(super().greedy(hidden, adapters))


def _sample(
    logits: Tensor, rows: SamplingRows, masks: GrammarBitmask | None = None
) -> SampledTokens:
    return _first_tokens(sampler.sample(logits, rows, masks))


def _first_tokens(sampled: SampledTokens) -> SampledTokens:
    sampled.token_ids.zero_()
    return sampled


def _decoder(shape: Shape, counts: Counts) -> TritonDecoder:
    def no_linear(weight: Tensor, bias: Tensor | None) -> NoLinear:
        return NoLinear(counts, len(weight))

    with tempfile.TemporaryDirectory() as parent:
        plan = read_plan(write_checkpoint(shape, Path(parent)))
    weights = RandomWeights(0, CPU, torch.bfloat16)
    linears = LinearLoader(weights, LinearKind("none", no_linear, no_linear), CPU, torch.bfloat16)
    return load_triton_decoder(plan, weights, linears, MAX_MODEL_LEN)


def _executor(shape: Shape, work: Work, counts: Counts, graphs: NoGraphs) -> ModelRunner:
    kind = AttentionKind()
    decoder, attention = _decoder(shape, counts), TritonAttention(CPU, kind)
    bounds = DecodeBounds(work.num_decodes + 1, MAX_MODEL_LEN)
    attention.reserve(shape.heads, shape.head_dim, bounds)
    # All sequences have the same block: nothing reads what is in it.
    cache = KvCache(
        shape=decoder.plan.cache_shape,
        num_blocks=1,
        block_size=BLOCK_SIZE,
        device=CPU,
        dtype=torch.bfloat16,
        has_whole_blocks=True,
    )
    limits = SlotLimits(
        num_slots=bounds.max_num_seqs,
        num_blocks=1,
        block_size=BLOCK_SIZE,
        max_model_len=MAX_MODEL_LEN,
        vocab_size=shape.vocab,
    )
    slots = SlotTable(limits, CPU, has_resident_tables=True)
    slots._host_tokens = None
    watch = LayerCalls(_nothing)
    attentions = {kind: attention}
    eager = TorchBackend(
        model=decoder, kv_cache=cache, attentions=attentions, linear_name="none", on_layer=watch
    )
    captured = None
    if work.is_captured:
        captured = DecodeGraphs(
            model=decoder,
            kv_cache=cache,
            attentions=attentions,
            bounds=bounds,
            capture=graphs,
            advance=_nothing,
        )
    return ModelRunner(
        backend=_Backend(eager, captured, watch),
        limits=limits,
        max_num_batched_tokens=MAX_TOKENS,
        device=CPU,
        steps_in_flight=2,
        sampler=_sample,
        readback=NoReadback(counts),
        slots=slots,
    )


def _nothing() -> None:
    pass
