"""Steps between the product of the last layer and the logits, in torch and in the model's type."""

import torch
from torch import Tensor

from pagewire_worker.families.plan import LogitsSpec


def finish_logits(spec: LogitsSpec, products: Tensor) -> Tensor:
    """Return logits for the products of the last layer, [rows, vocab]."""
    if spec.divisor != 1.0:
        products = products / spec.divisor
    if spec.softcap is not None:
        products = torch.tanh(products / spec.softcap) * spec.softcap
    return products
