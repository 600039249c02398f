"""Checkpoints and loaded replicas that the worker's tests share."""

import pytest
import torch

from pagewire_worker.config import WorkerConfig
from pagewire_worker.loader import Replica, load_replica
from support.checkpoints import make_checkpoint
from support.worker_driver import Driver


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


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


def load(folder, **settings) -> Replica:
    """Load a replica with small defaults."""
    defaults = {"max_model_len": 256, "max_num_seqs": 40, "cpu_threads": 1, "dtype": "float32"}
    return load_replica(WorkerConfig(model=str(folder), **{**defaults, **settings}))


@pytest.fixture
def replica(checkpoint):
    """Return a function that loads a variant."""
    return lambda name, **settings: load(checkpoint(name), **settings)


@pytest.fixture
def driver(replica):
    """Return a function that loads a variant and wraps it in a Driver."""

    def make(name, **settings):
        loaded = replica(name, **settings)
        return Driver(
            loaded.executor,
            num_blocks=loaded.info.num_blocks,
            block_size=loaded.info.cache_groups[0].block_size,
        )

    return make
