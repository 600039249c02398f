"""Runs the largest possible step, to measure its memory beside weights and KV cache.

One chunk lies at the end of a sequence of full length, because gathering keys and values takes more
memory for a longer context. The step writes to a small cache of its own, whose content does not
matter. Then one token per sequence is sampled, with every option that takes memory.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.params import MAX_LOGPROBS, SamplingParams
from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import GroupBatch, StepBatch
from pagewire_worker.backend.source import LoadedReplicaModel
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.kv.layer_watch import LayerWatch
from pagewire_worker.loading.cache_budget import DeviceMemory
from pagewire_worker.loading.memory_probe import MemoryProbe
from pagewire_worker.runner.step_sampler import Sampler
from pagewire_worker.sampling.sampler import sample
from pagewire_worker.sampling.sampling_table import SamplingTable
from pagewire_worker.sampling.token_history import TokenHistory


@dataclass(frozen=True, slots=True)
class LargestStep:
    """Upper bounds of a step.

    Attributes:
        num_tokens: Most tokens.
        num_seqs: Most sequences.
        seq_len: Longest sequence.
    """

    num_tokens: int
    num_seqs: int
    seq_len: int

    def query_lens(self) -> list[int]:
        """Return the new tokens of each sequence; as few sequences as fill the step."""
        lengths: list[int] = []
        left = self.num_tokens
        while left > 0 and len(lengths) < self.num_seqs:
            lengths.append(min(left, self.seq_len))
            left -= lengths[-1]
        return lengths


@dataclass(frozen=True, slots=True)
class MostSampling:
    """A sampler and the tokens that it reads.

    Attributes:
        tokens: [num_seqs, seq_len + 1] int32, the tokens of all slots.
    """

    sampler: Sampler
    tokens: Tensor

    @classmethod
    def by_torch(cls, step: LargestStep, device: torch.device) -> "MostSampling":
        """Return torch's sampler, over its own tokens."""
        size = (step.num_seqs, step.seq_len + 1)
        return cls(sample, torch.zeros(size, dtype=torch.int32, device=device))

    def run(self, logits: Tensor, seq_len: int) -> None:
        """Sample a token for each row of `logits` [rows, vocab] after `seq_len` tokens."""
        num_rows = len(logits)
        table = SamplingTable(num_rows, logits.device)
        for slot in range(num_rows):
            table.set(_request(slot))
        slots = np.arange(num_rows)
        history = TokenHistory(
            self.tokens, slots, np.ones_like(slots), np.full_like(slots, seq_len)
        )
        self.sampler(logits, table.rows(slots, slots, history))


_MOST = SamplingParams(
    seed=0,
    temperature=0.9,
    top_k=1000,
    top_p=0.999,
    min_p=1e-6,
    repetition_penalty=1.1,
    frequency_penalty=0.1,
    presence_penalty=0.1,
    logprobs=MAX_LOGPROBS,
    max_tokens=None,
)


def _request(slot: int) -> NewSequence:
    return NewSequence(
        slot=slot,
        request_id=b"profile",
        choice=0,
        prompt_token_ids=[0],
        emitted_token_ids=[],
        sampling=_MOST,
        block_ids=[],
    )


def profile_step(
    model: LoadedReplicaModel,
    step: LargestStep,
    probe: MemoryProbe,
    on_layer: LayerWatch,
    *,
    block_size: int,
    device: torch.device,
    dtype: torch.dtype,
    sampling: MostSampling | None = None,
    graph_bytes: int = 0,
) -> DeviceMemory:
    """Run `step` and return the memory of the step and of everything else.

    Args:
        probe: Measures the memory of `device`.
        sampling: How tokens are sampled; None for torch.
        graph_bytes: Future size of captured graphs.

    Raises:
        StartupError: The device has no memory for such a step.
    """
    sampling = MostSampling.by_torch(step, device) if sampling is None else sampling
    num_blocks = -(-step.num_tokens // block_size)
    try:
        cache = KvCache(
            shape=model.cache_shape,
            num_blocks=num_blocks,
            block_size=block_size,
            device=device,
            dtype=dtype,
        )
        backend = model.backend(cache, on_layer)
        probe.begin()
        hidden = backend.forward(_batch(step, cache))
        sampling.run(backend.logits(hidden[: step.num_seqs]), step.seq_len)
        peak = probe.peak()
    except torch.OutOfMemoryError as error:
        raise StartupError(
            f"--max-num-batched-tokens: the device has no memory for a step of {step.num_tokens} "
            f"tokens and {step.num_seqs} sequences beside the model; lower it, --max-num-seqs or "
            f"--max-model-len ({str(error).splitlines()[0]})",
            field="max_num_batched_tokens",
        ) from error
    found = probe.in_use()
    return DeviceMemory(
        total=found.total,
        used=found.used,
        model=found.own,
        step=peak,
        num_tokens=step.num_tokens,
        graphs=graph_bytes,
    )


def _batch(step: LargestStep, cache: KvCache) -> StepBatch:
    query_lens = step.query_lens()
    num_tokens = sum(query_lens)
    # The chunk of the first sequence lies at its end; the other sequences are new as a whole.
    seq_lens = [step.seq_len if index == 0 else new for index, new in enumerate(query_lens)]
    positions = np.concatenate(
        [np.arange(end - new, end) for new, end in zip(query_lens, seq_lens, strict=True)]
    )
    blocks = np.arange(-(-step.seq_len // cache.block_size)) % cache.num_blocks
    slots = torch.arange(num_tokens, device=cache.device)
    num_outputs = min(step.num_seqs, num_tokens)
    attention = AttentionMetadata(
        query_starts=np.cumsum([0, *query_lens]),
        seq_lens=np.array(seq_lens),
        block_tables=np.tile(blocks, (len(query_lens), 1)),
    )
    return StepBatch(
        token_ids=torch.zeros(num_tokens, dtype=torch.int64, device=cache.device),
        positions=torch.from_numpy(positions).to(cache.device),
        slot_mapping=slots,
        output_rows=slots[num_tokens - num_outputs :],
        attention=attention,
        # Content does not matter, so all groups may write to the same blocks.
        further_groups=(GroupBatch(slots, attention),) * (cache.num_groups - 1),
    )
