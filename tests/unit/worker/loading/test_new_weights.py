"""Weights that take the place of others: which ones do, and what becomes of the replica."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sleep.state import ALL_TAGS, MemoryState, SleepOrder
from pagewire_shared.weights.version import STARTED, UpdateOrder, WeightsSource
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.replica_memory import ReplicaMemory
from pagewire_worker.loading.replica_shape import config_of
from pagewire_worker.serving.weights_check import check_weights
from support.cells.worker_driver import PROMPT, Driver
from support.checkpoints.checkpoints import make_checkpoint
from support.oracles.family_checkpoints import make_family_checkpoint

SETTINGS = {"max_model_len": 256, "cpu_threads": 1, "kv_cache_memory": 8 << 20}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("old") / "model", seed=1)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("new") / "model", seed=2, sharded=True)


def config_for(folder: Path, **settings: object) -> WorkerConfig:
    return WorkerConfig(model=str(folder), **{**SETTINGS, **settings})  # type: ignore[arg-type]


def memory_of(folder: Path, **settings: object) -> ReplicaMemory:
    memory = ReplicaMemory(config_for(folder, **settings))
    memory.load()
    return memory


def tokens(memory: ReplicaMemory) -> list[list[int]]:
    return Driver.of(memory.replica).generate([PROMPT, PROMPT[:20]])


def update(
    memory: ReplicaMemory, folder: Path | str, serial: int, fingerprint: bytes = b""
) -> None:
    memory.begin_sleep()
    memory.drop(SleepOrder())
    memory.begin_wake()
    memory.update(UpdateOrder(WeightsSource(path=str(folder), serial=serial), fingerprint))


def changed(folder: Path, target: Path, **tensors: torch.Tensor | None) -> Path:
    """A copy of a checkpoint with other tensors, by the last parts of their names."""
    shutil.copytree(folder, target)
    path = target / "model.safetensors"
    stored = load_file(path)
    for ending, tensor in tensors.items():
        (name,) = [one for one in stored if one.endswith(ending.replace("__", "."))]
        if tensor is None:
            del stored[name]
        else:
            stored[name] = tensor
    save_file(stored, path)
    return target


@pytest.mark.parametrize("settings", [{}, {"quantization": "int4"}])
def test_a_replica_has_the_tokens_of_a_fresh_one(old, new, settings):
    memory = memory_of(old, **settings)
    before, info = tokens(memory), memory.replica.info
    fresh = memory_of(new, **settings)
    expected = tokens(fresh)
    assert expected != before
    fingerprint = check_weights(config_for(old, **settings), STARTED, str(new))
    assert fingerprint == fresh.replica.info.model_fingerprint
    update(memory, new, 5, fingerprint)
    assert tokens(memory) == expected
    assert memory.replica.info.model_fingerprint == fingerprint
    assert memory.replica.info.worker_id == info.worker_id
    assert memory.replica.info.served_model_name == str(old)
    assert (memory.source.serial, memory.failed_update, memory.sleep) == (5, None, None)
    update(memory, "", 6, info.model_fingerprint)
    assert tokens(memory) == before
    assert memory.replica.info == info


def test_weights_may_be_published_in_another_type(tmp_path):
    old = make_checkpoint(tmp_path / "old", seed=1, dtype="bfloat16")
    new = make_checkpoint(tmp_path / "new", seed=2, dtype="float32")
    memory, fresh = memory_of(old), memory_of(new, dtype="bfloat16")
    expected = tokens(fresh)
    update(memory, new, 1, check_weights(memory.started, STARTED, str(new)))
    assert memory.failed_update is None
    assert tokens(memory) == expected


@pytest.mark.long
def test_experts_are_exchanged(tmp_path):
    folders = [make_family_checkpoint(tmp_path / name, "mixtral") for name in ("a", "b")]
    path = folders[1] / "model.safetensors"
    save_file({name: tensor.flip(0) for name, tensor in load_file(path).items()}, path)
    memory, fresh = map(memory_of, folders)
    expected = tokens(fresh)
    assert tokens(memory) != expected
    update(memory, folders[1], 1, check_weights(config_for(folders[0]), STARTED, str(folders[1])))
    assert tokens(memory) == expected


def test_weights_that_changed_after_the_check_are_not_served(old, new):
    memory = memory_of(old)
    before = tokens(memory)
    update(memory, new, 5, b"x" * 32)
    assert memory.failed_update is not None
    serial, error = memory.failed_update
    assert (serial, error.field) == (5, "path")
    assert "is not what it was when it was checked" in error.message
    assert memory.source == STARTED
    assert tokens(memory) == before


def test_if_neither_can_be_loaded_the_worker_sleeps_and_can_be_woken(old, tmp_path):
    folder = shutil.copytree(old, tmp_path / "model")
    memory = memory_of(folder)
    before = tokens(memory)
    folder.rename(tmp_path / "away")
    with pytest.raises(Exception, match="the worker cannot wake"):
        update(memory, tmp_path / "nowhere", 5)
    assert memory.sleep is not None
    assert memory.sleep.state is MemoryState.ASLEEP
    (tmp_path / "away").rename(folder)
    memory.begin_wake()
    memory.wake(ALL_TAGS)
    assert tokens(memory) == before


def test_a_wake_after_an_update_has_the_newest_weights(old, new):
    memory = memory_of(old)
    update(memory, new, 5)
    expected = tokens(memory)
    for level in (1, 2):
        memory.begin_sleep()
        memory.drop(SleepOrder(level=level))
        memory.begin_wake()
        memory.wake(ALL_TAGS)
        assert tokens(memory) == expected


def refusal(config: WorkerConfig, path: Path | str) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        check_weights(config, STARTED, str(path))
    assert caught.value.field in ("path", None)
    return caught.value.message


def test_weights_that_do_not_fit_are_named(old, tmp_path):
    config = config_for(old)
    small = torch.zeros(3)
    lacking = changed(old, tmp_path / "lacking", model__norm__weight=None)
    assert refusal(config, lacking) == f"path: {lacking} lacks the tensor model.norm.weight"
    odd = changed(old, tmp_path / "odd", model__norm__weight=small)
    assert "model.norm.weight has shape [3], the model has [64]" in refusal(config, odd)
    other = make_checkpoint(tmp_path / "other", seed=1, layers=3)
    assert "which the model does not have" in refusal(config, other)
    qwen = make_checkpoint(tmp_path / "qwen", architecture="Qwen3ForCausalLM")
    assert "config.json is that of another model" in refusal(config, qwen)
    assert "is no folder of this host" in refusal(config, tmp_path / "nowhere")
    torn = shutil.copytree(old, tmp_path / "torn")
    (torn / "model.safetensors").write_bytes(b"torn")
    assert "torn" in refusal(config, torn)
    words = shutil.copytree(old, tmp_path / "words")
    text = json.loads((words / "tokenizer.json").read_text())
    (words / "tokenizer.json").write_text(json.dumps({**text, "version": "2"}))
    assert "is not the tokenizer of the model" in refusal(config, words)


def test_what_is_not_updated_is_named(old, new):
    assert "--load-format dummy" in refusal(config_for(old, load_format="dummy"), new)
    hosts = config_for(old, tensor_parallel_size=2, rank_hosts=2)
    assert "not updated with --rank-hosts" in refusal(hosts, new)


def test_a_model_with_tied_embeddings_need_not_store_its_head_twice(tmp_path):
    tied = make_checkpoint(tmp_path / "tied", tied=True)
    with_head = shutil.copytree(tied, tmp_path / "head")
    stored = load_file(with_head / "model.safetensors")
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"].clone()
    save_file(stored, with_head / "model.safetensors")
    assert check_weights(config_for(tied), STARTED, str(with_head))
    assert check_weights(config_for(with_head), STARTED, str(tied))


def test_name_and_tokenizer_stay():
    started = WorkerConfig(model="org/model", revision="v1", served_model_name="m")
    config = config_of(started, WeightsSource(path="/step"))
    assert (config.model, config.revision, config.served_model_name) == ("/step", "", "m")
    assert (config.tokenizer, config.tokenizer_revision) == ("org/model", "v1")
    assert config_of(started, STARTED) is started
