"""Adapters of the embedding and of the matrix for logits: what PEFT writes beside them, prompt
log-probabilities, and rows of a step that share one matrix with others."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.loading.loader import Replica
from support.adapters.model_adapters import PREFIX, MadeAdapter, make_adapter, merge
from support.cells.worker_driver import Driver, Running, load
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels

FOLDER = Path(__file__).parents[3] / "support" / "adapters"
SETTINGS: dict[str, Any] = {"enable_lora": True, "max_loras": 2}
SAMPLING = SamplingParams(temperature=0.0, max_tokens=None, prompt_logprobs=0)
FUSED, TORCH = {"cpu_backend": "fused"}, {"cpu_backend": "torch"}
WAYS = [pytest.param(FUSED, marks=needs_kernels), TORCH]


def prompt_scores(replica: Replica, slots: list[int | None]) -> list[np.ndarray]:
    """Return the log-probabilities of the tokens of a prompt, for each adapter slot."""
    prompt = [(11 * place + 5) % 128 for place in range(30)]
    running = [
        Running(number, prompt, SAMPLING, 1, adapter_slot=slot) for number, slot in enumerate(slots)
    ]
    Driver.of(replica).finish(running, budget=50)
    found: list[list[float]] = [[] for _ in slots]
    for result in {id(one): one for own in running for one in own.results}.values():
        if result.prompt is not None:
            values = iter(result.prompt.logprobs)
            for slot, count in zip(result.prompt.slots, result.prompt.counts, strict=True):
                found[int(slot)] += [float(next(values)) for _ in range(int(count))]
    return [np.array(one) for one in found]


@pytest.mark.parametrize("way", WAYS)
def test_prompt_logprobs(way: dict[str, str], tmp_path: Path) -> None:
    model = FOLDER / "model"
    adapter = make_adapter(tmp_path / "a", model, only=("embed_tokens", "lm_head"), outer=True)
    replica = load(model, **way, **SETTINGS)
    adapter.fill(replica.model_runner, 1)
    plain, own, again = prompt_scores(replica, [None, 1, None])
    (expected,) = prompt_scores(load(merge(adapter, model, tmp_path / "m"), **TORCH), [None])
    assert len(own) == 29
    np.testing.assert_allclose(own, expected, atol=2e-3, rtol=2e-3)
    assert np.abs(own - plain).max() > 0.1
    np.testing.assert_allclose(plain, again, atol=1e-6)


def copied(tmp_path: Path, name: str) -> MadeAdapter:
    return MadeAdapter(Path(shutil.copytree(FOLDER / name, tmp_path / "adapter")), {})


@pytest.mark.parametrize(("model", "name"), [("model", "outer"), ("tied/model", "tied/adapter")])
def test_copies_of_matrices_have_to_be_equal(model: str, name: str, tmp_path: Path) -> None:
    slots = load(FOLDER / model, **TORCH, **SETTINGS).model_runner._adapters
    assert slots is not None
    adapter = copied(tmp_path, name)
    assert len(adapter.summary.copies) == 2
    slots.verify(adapter.content, adapter.summary)
    path = adapter.folder / "adapter_model.safetensors"
    tensors = load_file(path)
    for end in ("lm_head", "model.embed_tokens"):
        copy = f"{PREFIX}{end}.base_layer.weight"
        changed = tensors | {copy: tensors[copy] + torch.eye(128, 64) * 0.5}
        save_file(changed, path)
        with pytest.raises(AdapterError, match="is not equal to the matrix") as caught:
            slots.verify(adapter.content, adapter.summary)
        assert caught.value.field == copy
        save_file(tensors | {copy: tensors[copy][:100].contiguous()}, path)
        with pytest.raises(AdapterError, match="is not equal to the matrix"):
            slots.verify(adapter.content, adapter.summary)


def test_a_slot_has_room_for_so_much(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "m", architecture="LlamaForCausalLM", with_tokenizer=False)
    adapter = make_adapter(tmp_path / "a", model, rank=16, only=("lm_head",), outer=True)
    adapter.fill(load(model, **TORCH, **SETTINGS).model_runner, 0)
    small = load(model, **TORCH, enable_lora=True, max_loras=64, lora_memory=1 << 20)
    with pytest.raises(AdapterError, match=r"matrix for logits .* of a slot, which has 16384"):
        adapter.fill(small.model_runner, 0)
