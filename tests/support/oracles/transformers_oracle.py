"""What a model says according to transformers, one token at a time and without a cache, with the
rules of sampling applied in numpy. Shares nothing with the system under test."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM

Row = npt.NDArray[np.float32]
Rule = Callable[[Row, Sequence[int], Sequence[int]], Row]
"""From the logits [vocab], the prompt and the output so far to the logits that are chosen from."""

NEAR_TIE = 1e-4


class Oracle:
    """A checkpoint in float32."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def logits(self, token_ids: Sequence[int]) -> Row:
        """Return what each token predicts, [tokens, vocab]."""
        with torch.inference_mode():
            found: Row = self._model(input_ids=torch.tensor([list(token_ids)])).logits[0].numpy()
        return found

    def logprobs(self, token_ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return the log-softmax of `logits`, [tokens, vocab]."""
        logits = self.logits(token_ids).astype(np.float64)
        shifted = logits - logits.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    def greedy(
        self,
        prompt: Sequence[int],
        num_tokens: int,
        rule: Rule | None = None,
        stop: Collection[int] = (),
        min_tokens: int = 0,
    ) -> list[int]:
        """Return the most likely tokens under a rule, up to one of `stop` after `min_tokens`."""
        output: list[int] = []
        while len(output) < num_tokens:
            row = self.logits([*prompt, *output])[-1].copy()
            row = row if rule is None else rule(row, prompt, output)
            second, first = np.sort(row)[-2:]
            # Else both would be right, and the test would have to use another prompt.
            assert first - second > NEAR_TIE, "a near tie"
            output.append(int(row.argmax()))
            if output[-1] in stop and len(output) > min_tokens:
                break
        return output
