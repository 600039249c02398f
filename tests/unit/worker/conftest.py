"""Checkpoints and loaded replicas that the worker's tests share."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from support.cells.worker_driver import Driver, load
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.fallback_checkpoints import make_served_checkpoint


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """What is measured at a start stays among the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


VARIANTS = {
    "llama": {"architecture": "LlamaForCausalLM"},
    "llama3-rope-sharded": {
        "architecture": "LlamaForCausalLM",
        "rope_scaling": "llama3",
        "sharded": True,
    },
    "llama-linear-rope-bias": {
        "architecture": "LlamaForCausalLM",
        "rope_scaling": "linear",
        "head_dim": 32,
        "config": {"attention_bias": True, "mlp_bias": True},
    },
    "qwen2-tied": {"architecture": "Qwen2ForCausalLM", "tied": True},
    "qwen3": {"architecture": "Qwen3ForCausalLM", "heads": 8, "kv_heads": 2, "head_dim": 16},
}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """Return a function from a variant's name to its folder, made once."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name] = make_checkpoint(folder, **VARIANTS[name], with_tokenizer=False)
        return made[name]

    return get


@pytest.fixture(scope="session")
def transformers_model(checkpoint):
    """Return a function from a variant's name to transformers' model, loaded once."""
    models = {}

    def get(name):
        if name not in models:
            model = AutoModelForCausalLM.from_pretrained(checkpoint(name), dtype=torch.float32)
            models[name] = model.eval()
        return models[name]

    return get


@pytest.fixture
def replica(checkpoint):
    """Return a function that loads a variant."""
    return lambda name, **settings: load(checkpoint(name), **settings)


@pytest.fixture
def driver(replica):
    """Return a function that loads a variant and wraps it in a Driver."""
    return lambda name, **settings: Driver.of(replica(name, **settings))


@pytest.fixture
def llama(driver) -> Driver:
    """A Driver of the plain Llama in blocks of 16."""
    return driver("llama", block_size=16)


@pytest.fixture
def gpt2(tmp_path):
    """A checkpoint that runs through transformers and may be damaged."""
    return make_served_checkpoint(tmp_path, "gpt2")
