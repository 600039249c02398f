"""In bfloat16 the parts of torch's decoder round where the published models do, to the bit."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import LayerNorm as PublishedLayerNorm
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from pagewire_worker.families.plan import LogitsSpec, NormSpec
from pagewire_worker.layers.logits import finish_logits
from pagewire_worker.models.decoder import load_norm
from pagewire_worker.models.load_parts import embedding_factor

DTYPE = torch.bfloat16
SIZE = 96


class Stored:
    """Two tensors of a norm, by the ends of their names."""

    def __init__(self, norm):
        self.tensors = {f"norm.{name}": one.data for name, one in norm.named_parameters()}

    def take(self, name, shape):
        return self.tensors[name]


@pytest.mark.parametrize(
    ("published", "options"),
    [
        (LlamaRMSNorm, {}),
        (Gemma2RMSNorm, {"offset": 1.0, "rounds_late": True}),
        (Olmo2RMSNorm, {"rounds_late": True}),
        (PublishedLayerNorm, {"is_centered": True}),
    ],
)
def test_norms(published, options):
    torch.manual_seed(0)
    norm = published(SIZE, eps=1e-5)
    for one in norm.parameters():
        one.data = torch.randn(SIZE)
    norm = norm.to(DTYPE)
    spec = NormSpec(name="norm", size=SIZE, epsilon=1e-5, **options)
    x = (torch.randn(50, SIZE) * 3).to(DTYPE)
    expected = norm(x)
    assert torch.equal(load_norm(spec, Stored(norm))(x), expected)
    other = NormSpec(name="norm", size=SIZE, epsilon=1e-5, rounds_late=not spec.rounds_late)
    assert spec.is_centered or not torch.equal(load_norm(other, Stored(norm))(x), expected)


def test_logits():
    products = (torch.randn(4, 300) * 20).to(DTYPE)
    capped = finish_logits(LogitsSpec(None, softcap=30.0), products)
    assert torch.equal(capped, torch.tanh(products / 30.0) * 30.0)
    assert torch.equal(finish_logits(LogitsSpec(None, 3.0), products), products / 3.0)
    assert finish_logits(LogitsSpec(None), products) is products


def test_a_multiplier_is_rounded_where_the_published_model_rounds_it():
    plan = SimpleNamespace(embedding_multiplier=3072**0.5, has_narrow_multiplier=True)
    assert embedding_factor(plan, DTYPE) == 55.5
    plan.has_narrow_multiplier = False
    assert embedding_factor(plan, DTYPE) == 3072**0.5
