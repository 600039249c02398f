"""--load-format dummy: a model of the shape that config.json says, drawn from a seed."""

import json
import shutil

import pytest
import torch
from safetensors import safe_open

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.random_weights import STD, RandomWeights
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cuda.triton_decoder import load_triton_decoder
from pagewire_worker.layers.linear import pick_linear
from pagewire_worker.loading.loader import load_replica
from pagewire_worker.models.decoder import load_decoder
from pagewire_worker.models.linear_loader import LinearLoader
from pagewire_worker.models.registry import read_plan
from support.cells.worker_driver import Driver
from support.kernels.fused_kernels import needs_kernels

from ..conftest import VARIANTS

CPU = torch.device("cpu")


@pytest.fixture
def shape_only(checkpoint, tmp_path):
    """Return a function to a folder with the config.json of a variant and nothing else."""

    def make(name, **fields):
        folder = tmp_path / name
        folder.mkdir()
        data = json.loads((checkpoint(name) / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**data, **fields}))
        return folder

    return make


def load(folder, **settings):
    given = {"max_model_len": 64, "cpu_threads": 1, "load_format": "dummy", **settings}
    return load_replica(WorkerConfig(model=str(folder), kv_cache_memory=2**20, **given))


def greedy(replica, prompts=((5, 9, 2, 30, 7),)):
    driver = Driver(replica.model_runner, num_blocks=replica.info.num_blocks, block_size=16)
    return driver.generate(prompts, max_tokens=12)


class Recorded(RandomWeights):
    """Writes down what is taken."""

    def __init__(self):
        super().__init__(0, CPU, torch.float32)
        self.shapes = {}

    def take_stacked(self, parts):
        for name, shape in parts:
            assert name not in self.shapes
            self.shapes[name] = shape
        return super().take_stacked(parts)


BACKENDS = ["torch", pytest.param("fused", marks=needs_kernels)]


@pytest.mark.parametrize("cpu_backend", BACKENDS)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_folder_with_nothing_but_a_shape_is_served(name, cpu_backend, shape_only):
    replica = load(shape_only(name), cpu_backend=cpu_backend)
    outputs = greedy(replica, ([5, 9, 2], [5, 9, 30]))
    assert outputs[0] != outputs[1]


@pytest.mark.parametrize("build", [load_decoder, load_triton_decoder], ids=["torch", "triton"])
@pytest.mark.parametrize("name", VARIANTS)
def test_decoders_take_the_tensors_that_a_checkpoint_holds(name, build, checkpoint):
    stored = {}
    for path in checkpoint(name).glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            stored |= {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    weights = Recorded()
    kind = pick_linear("torch", CPU, torch.float32)
    linears = LinearLoader(weights, kind, CPU, torch.float32)
    more = (CPU,) if build is load_decoder else ()
    build(read_plan(checkpoint(name)), weights, linears, 64, *more)
    assert weights.shapes == stored


def test_the_same_seed_gives_the_same_model_and_another_one_another(shape_only):
    folder = shape_only("qwen3")
    first, again, other = (load(folder, seed=seed) for seed in (7, 7, 8))
    assert greedy(first) == greedy(again) != greedy(other)
    assert first.info.model_fingerprint == again.info.model_fingerprint
    assert first.info.model_fingerprint != other.info.model_fingerprint


def test_what_else_changes_the_weights_changes_the_fingerprint(shape_only, checkpoint):
    folder = shape_only("qwen3")
    prints = {
        load(folder).info.model_fingerprint,
        load(folder, dtype="bfloat16").info.model_fingerprint,
        load(shape_only("llama")).info.model_fingerprint,
        load(checkpoint("qwen3"), load_format="auto").info.model_fingerprint,
    }
    assert len(prints) == 4


def test_a_tensor_depends_on_its_name_and_not_on_its_turn():
    def reader():
        return RandomWeights(3, CPU, torch.bfloat16)

    both = reader().take_stacked([("a.weight", (40, 24)), ("b.weight", (8, 24))])
    late = reader()
    late.take("x", (5, 5))
    assert torch.equal(late.take("b.weight", (8, 24)), both[40:])
    assert torch.equal(reader().take("a.weight", (40, 24)), both[:40])
    assert not torch.equal(both[:8], both[40:])


def test_tensors_are_normal_and_norms_are_one():
    weights = RandomWeights(0, CPU, torch.float32)
    drawn = weights.take("model.layers.0.mlp.up_proj.weight", (300, 200))
    assert drawn.std().item() == pytest.approx(STD, rel=0.02)
    assert abs(drawn.mean().item()) < 3 * STD / 60000**0.5
    for name in ("model.norm", "model.layers.0.self_attn.q_norm", "x.post_attention_layernorm"):
        assert torch.equal(weights.take(f"{name}.weight", (9,)), torch.ones(9))


def test_without_it_a_folder_without_weights_is_refused(shape_only):
    with pytest.raises(StartupError, match=r"neither model\.safetensors nor"):
        load(shape_only("llama"), load_format="auto")


def test_models_of_transformers_are_refused(shape_only):
    with pytest.raises(
        StartupError, match="--load-format: dummy is for models of our own"
    ) as raised:
        load(shape_only("llama", hidden_act="relu2"))
    assert raised.value.field == "load_format"


def test_checkpoints_are_not_looked_at(checkpoint, shape_only, tmp_path):
    damaged = shutil.copytree(checkpoint("llama"), tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"no tensors")
    assert greedy(load(damaged)) == greedy(load(shape_only("llama")))
