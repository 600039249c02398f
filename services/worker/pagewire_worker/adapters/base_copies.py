"""Copies of the model's own matrices that PEFT writes beside adapters of the embedding and of the
matrix for logits: they change nothing if they are equal to the model's, and are refused otherwise.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import torch
from torch import Tensor

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import AdapterContent, AdapterSummary
from pagewire_shared.adapters.content_id import WEIGHTS_NAME
from pagewire_shared.adapters.model_shapes import own_module
from pagewire_worker.adapters.content import stored_values
from pagewire_worker.families.plan import ModelPlan

Borrow = Callable[[str, tuple[int, ...]], AbstractContextManager[Tensor]]
"""(name, shape) -> a tensor of the model's checkpoint, while it is borrowed."""

_ROWS: Final = 4096
"""Rows that are compared at once: conversions of whole matrices would take hundreds of MB."""


class BaseCopies:
    """Compares copies with the checkpoint of a model.

    Args:
        open_checkpoint: Returns what lends tensors of it.
        dtype: Type of the model, in which values are compared.
    """

    def __init__(
        self, plan: ModelPlan, open_checkpoint: Callable[[], Borrow], dtype: torch.dtype
    ) -> None:
        self._plan = plan
        self._open_checkpoint = open_checkpoint
        self._dtype = dtype

    def verify(self, content: AdapterContent, summary: AdapterSummary) -> None:
        """Compare all copies of an adapter. It blocks.

        Raises:
            AdapterError: One is not equal to the matrix of the model; it names the tensor.
        """
        plan = self._plan
        for name, copy in summary.copies.items():
            own = plan.embedding
            if own_module(name) != own:
                own = plan.logits.name or own
            shape = (plan.vocab_size, plan.hidden_size)
            with self._open_checkpoint()(f"{own}.weight", shape) as stored:
                is_same = copy.shape == shape and all(
                    torch.equal(ours.to(self._dtype), theirs.to(self._dtype))
                    for ours, theirs in zip(
                        stored.split(_ROWS), stored_values(content, copy).split(_ROWS), strict=True
                    )
                )
            if not is_same:
                raise AdapterError(
                    f"{WEIGHTS_NAME}: tensor {copy.name} is not equal to the matrix of the model,"
                    " and an adapter cannot replace a matrix",
                    copy.name,
                )
