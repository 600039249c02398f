"""All kinds of models let go of their memory and come back the same: nothing outside of the owner
of the memory keeps a replica, whatever it is made of."""

import json
import weakref
from pathlib import Path
from typing import Any

import pytest

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sleep.state import ALL_TAGS, SleepOrder
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.replica_memory import ReplicaMemory
from support.cells.worker_driver import PROMPT, Driver
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.encoder_checkpoints import make_encoder
from support.checkpoints.fallback_checkpoints import make_served_checkpoint
from support.checkpoints.gguf_files import make_source, write_blocks
from support.oracles.family_checkpoints import make_family_checkpoint
from support.products import cases_of

SAMPLED = SamplingParams(seed=1, temperature=1.0, max_tokens=None)


def dense(folder: Path) -> Path:
    return make_checkpoint(folder, with_tokenizer=False)


def gguf(folder: Path) -> Path:
    folder.mkdir()
    return write_blocks(
        folder / "blocks", make_source(folder / "source", "LlamaForCausalLM"), "Q4_1"
    )


def encoder(folder: Path) -> Path:
    return make_encoder(folder, "BertModel")


def experts(folder: Path) -> Path:
    return make_family_checkpoint(folder, "mixtral")


def other(folder: Path) -> Path:
    return make_served_checkpoint(folder, "phi")


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "int4": (dense, {"quantization": "int4"}),
    "int8 of torch's cache": (dense, {"kv_cache_dtype": "int8", "cpu_backend": "torch"}),
    "gguf": (gguf, {}),
    "experts": (experts, {"expert_metrics": True}),
    "adapters": (dense, {"enable_lora": True}),
    "adapters of torch": (dense, {"enable_lora": True, "cpu_backend": "torch"}),
    "lookup": (dense, {"speculative_config": {"method": "ngram"}}),
    "draft model": (dense, {"speculative_config": {"method": "draft_model"}}),
    "encoder": (encoder, {}),
    "transformers": (other, {"model_impl": "transformers"}),
}


def settings_of(kind: str, folder: Path) -> dict[str, Any]:
    settings = dict(KINDS[kind][1])
    speculation = settings.get("speculative_config")
    if speculation:
        own = {"num_speculative_tokens": 3, **speculation}
        if own["method"] == "draft_model":
            own["model"] = str(folder)
        settings["speculative_config"] = json.dumps(own)
    return settings


@pytest.mark.parametrize("kind", cases_of(KINDS, ["int4", "draft model"]))
def test_a_kind_of_model_sleeps(tmp_path: Path, kind: str) -> None:
    folder = KINDS[kind][0](tmp_path / "model")
    memory = ReplicaMemory(
        WorkerConfig(
            model=str(folder),
            enable_sleep_mode=True,
            max_model_len=128,
            cpu_threads=1,
            kv_cache_memory=4 << 20,
            **settings_of(kind, folder),
        )
    )
    memory.load()
    info = memory.replica.info
    before = None if info.is_encoder else _tokens(memory)
    backend = memory.replica.model_runner.backend
    held = [weakref.ref(one) for one in (backend, backend.kv_cache, memory.replica.model_runner)]
    del backend
    memory.begin_sleep()
    memory.drop(SleepOrder(level=2))
    assert [one() for one in held] == [None] * 3
    memory.begin_wake()
    replica = memory.wake(ALL_TAGS)
    assert replica is not None
    assert replica.info == info
    if before is not None:
        assert _tokens(memory) == before


def _tokens(memory: ReplicaMemory) -> list[list[int]]:
    driver = Driver.of(memory.replica)
    return [*driver.generate([PROMPT, PROMPT[:9]]), *driver.generate([PROMPT], SAMPLED)]
