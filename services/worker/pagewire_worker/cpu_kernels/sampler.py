"""Samples on CPUs: rules and filters as pagewire_worker.sampling says, noise by the kernels."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import KernelPool
from pagewire_worker.sampling.filters import NO_LIMIT, Floats, Rows, has_filters, least_kept
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask
from pagewire_worker.sampling.row_sums import SPAN
from pagewire_worker.sampling.sampler import sample
from pagewire_worker.sampling.sampling_table import SamplingRows

_CHOICE = np.dtype(abi.ChoiceArgs)


def _choices(count: int) -> Any:
    """Return `count` structures of the kernels, whose fields are arrays [count]."""
    return np.zeros(count, dtype=_CHOICE)


def choices_of(rows: SamplingRows, which: Rows) -> Any:
    """Return structures for the noise of the rows `which`, without tokens and limits."""
    choices = _choices(len(which))
    if len(which):
        choices["row"] = which
        choices["seed"] = _seeds(rows)[which]
        choices["position"] = rows.position.numpy()[which]
        choices["choice"] = rows.choice.numpy()[which]
        choices["temperature"] = rows.temperature[which]
    return choices


class KernelFilters:
    """The operations of pagewire_worker.sampling.filters, with the same results."""

    def __init__(self, pool: KernelPool) -> None:
        self._pool = pool

    def largest(self, values: Tensor, count: int) -> Tensor:
        """Return the `count` largest values per row of [rows, n], in falling order."""
        found = torch.empty((len(values), count), dtype=torch.float32)
        self._pool.largest(
            _address(values), *values.shape, values.stride(0), count, found.data_ptr()
        )
        return found

    def log_total(self, logits: Tensor, temperature: Floats, least: Tensor) -> Tensor:
        """Return the log of the sum of e ** (logits / temperature) of each row, [rows, 1].

        Spans in which nothing is kept have a sum of 0, and are not computed.
        """
        num_rows, vocab_size = logits.shape
        choices = _choices(num_rows)
        choices["row"] = np.arange(num_rows)
        choices["temperature"], choices["least"] = temperature, least.squeeze(1).numpy()
        row, size = (choices.ctypes.data, num_rows), (vocab_size, logits.stride(0))
        marks = np.zeros((num_rows, -(-vocab_size // SPAN)), dtype=np.uint8)
        self._pool.mark_spans(*row, _address(logits), *size, marks.ctypes.data)
        places = np.flatnonzero(marks)
        heat = torch.from_numpy(temperature).unsqueeze(1)
        shifts = logits.amax(dim=1, keepdim=True) / heat
        shifts.masked_fill_(shifts.isinf(), 0.0)
        values = torch.empty((len(places), SPAN), dtype=torch.float32)
        self._pool.scale_spans(
            *(row[0], _address(logits), *size, shifts.data_ptr()),
            *(places.ctypes.data, len(places), values.data_ptr()),
        )
        sums = torch.zeros(marks.shape, dtype=torch.float32)
        sums.view(-1)[torch.from_numpy(places)] = values.exp_().sum(dim=1)
        return sums.sum(dim=1, keepdim=True).log() + shifts


class KernelSampler:
    """Chooses the tokens of pagewire_worker.sampling.sampler.sample, in less time.

    Args:
        pool: Threads, which no other call uses meanwhile.
    """

    def __init__(self, pool: KernelPool) -> None:
        self._pool = pool
        self._filters = KernelFilters(pool)

    def __call__(
        self, logits: Tensor, rows: SamplingRows, masks: GrammarBitmask | None = None
    ) -> SampledTokens:
        """Choose one token per row of `logits` [rows, vocab], float32. Does not change `logits`."""
        return sample(logits, rows, masks, self._choose_random)

    def _choose_random(
        self, logits: Tensor, rows: SamplingRows, which: Rows, likely: Tensor
    ) -> Tensor:
        """Return one token for each of the rows `which` of `logits`; `likely` are of all rows."""
        choices = choices_of(rows, which)
        choices["token"] = likely.numpy()[which]
        choices["least"] = self._least_kept(logits, rows, which)
        self._pool.choose(
            choices.ctypes.data, len(choices), _address(logits), logits.shape[1], logits.stride(0)
        )
        return torch.from_numpy(np.ascontiguousarray(choices["token"]))

    def _least_kept(
        self, logits: Tensor, rows: SamplingRows, which: Rows
    ) -> npt.NDArray[np.float32] | float:
        """Return the least logits / temperature that the filters of the rows `which` keep."""
        filters = (rows.min_p[which], rows.top_k[which], rows.top_p[which])
        if not has_filters(*filters, logits.shape[1]):
            return NO_LIMIT
        own = logits
        if len(which) != len(logits):
            own = logits.index_select(0, torch.from_numpy(which))
        least = least_kept(own, rows.temperature[which], *filters, self._filters)
        assert least is not None, "there are filters"
        found: npt.NDArray[np.float32] = least.numpy()
        return found


def _address(values: Tensor) -> int:
    assert values.dtype == torch.float32, "logits are floats"
    assert values.stride(1) == 1, "a row is in one piece"
    return values.data_ptr()


def _seeds(rows: SamplingRows) -> npt.NDArray[np.uint64]:
    low, high = (one.numpy().astype(np.uint64) for one in (rows.seed_low, rows.seed_high))
    return low | high << np.uint64(32)
