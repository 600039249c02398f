"""Vectors computed by transformers alone, pooled here: what ours are compared with."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM

from pagewire_shared.sampling.pooling import PoolingParams

Vector = npt.NDArray[np.float64]


class PlainEmbedder:
    """One checkpoint in transformers' plain form, float32; a prompt at a time, without a cache."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).base_model.eval()

    def embed(self, prompt: Sequence[int], params: PoolingParams) -> Vector:
        """Return the vector of `prompt`, [dimensions]."""
        with torch.inference_mode():
            output = self._model(torch.tensor([list(prompt)]))
        states = output.last_hidden_state[0].double().numpy()
        vector: Vector = states[-1] if params.kind == "last" else states.mean(axis=0)
        vector = vector[: params.dimensions]
        return vector / np.linalg.norm(vector) if params.is_normalized else vector
