"""Reads the tokens of sequences so far, for the rules of the sampler.

Everything is read from the slots' tokens at each step. No copy has to follow preemptions, forks,
failed steps or steps in flight.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import Int64Array
from pagewire_worker.backend.device_copy import to_device


@dataclass(frozen=True, slots=True)
class TokenHistory:
    """The sequences of some rows.

    Attributes:
        tokens: [slots, longest] int32 on the device: prompt, then output, of every slot.
        slots: [rows] the slot of each row.
        prompt_lens: [rows] tokens of the prompt; the output begins there.
        num_tokens: [rows] tokens of prompt and output.
    """

    tokens: Tensor
    slots: Int64Array
    prompt_lens: Int64Array
    num_tokens: Int64Array

    def counts(self, rows: Int64Array, vocab_size: int) -> "TokenCounts":
        """Count the tokens of `rows` [n]."""
        longest = int(self.num_tokens[rows].max())
        device = self.tokens.device
        columns = np.stack((self.slots[rows], self.prompt_lens[rows], self.num_tokens[rows]))
        slots, prompt_lens, num_tokens = to_device(columns, device)
        token_ids = self.tokens[:, :longest].index_select(0, slots).long()
        positions = torch.arange(longest, device=device).unsqueeze(0)
        is_known = positions < num_tokens.unsqueeze(1)
        is_output = is_known & (positions >= prompt_lens.unsqueeze(1))
        shape = (len(rows), vocab_size)
        # Tokens behind the end belong to an earlier sequence of the slot: they are not counted.
        zeros = torch.zeros(shape, dtype=torch.float32, device=device)
        in_output = zeros.scatter_add(1, token_ids, is_output.float())
        anywhere = zeros.scatter_add_(1, token_ids, is_known.float())
        return TokenCounts(anywhere > 0, in_output)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Numbers of occurrences of tokens in some sequences.

    Attributes:
        occurs: [rows, vocab] bool: the token is in the prompt or the output.
        in_output: [rows, vocab] float32: occurrences in the output.
    """

    occurs: Tensor
    in_output: Tensor
