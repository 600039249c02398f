"""Adapters that PEFT itself wrote: logits are those that it computes (write.py and
write_experts.py in tests/support/adapters)."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pagewire_shared.adapters.adapter_folder import check_adapter
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.sampled_tokens import SampledTokens
from support.adapters.model_adapters import MadeAdapter
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.kernels.fused_kernels import needs_kernels

FOLDER = Path(__file__).parents[3] / "support" / "adapters"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/adapter_config.json"))
TOKENS = [(7 * position + 3) % 128 for position in range(24)]
LENGTHS = (1, 5, 24)


def logits_of(
    one: Driver,
    slots: list[int | None],
    monkeypatch: pytest.MonkeyPatch,
    lengths: Sequence[int] = LENGTHS,
) -> torch.Tensor:
    """Return the logits after `lengths` of TOKENS for each slot, [slots, lengths, vocab]."""
    backend, found = one.model_runner.backend, []
    logits = backend.logits

    def noted(hidden: torch.Tensor, adapters: AdapterRows | None) -> SampledTokens:
        found.append(logits(hidden, adapters).clone())
        return SampledTokens(found[-1].argmax(dim=1))

    sequences = [
        Running(number, TOKENS[:length], GREEDY, 1, adapter_slot=slot)
        for number, (slot, length) in enumerate((s, n) for s in slots for n in lengths)
    ]
    with monkeypatch.context() as patch:
        patch.setattr(backend, "greedy", noted)
        one.finish(sequences, budget=512)
    return torch.cat(found).view(len(slots), len(lengths), -1)


def test_there_are_adapters() -> None:
    assert len(NAMES) >= 5


@pytest.mark.parametrize("way", [pytest.param("fused", marks=needs_kernels), "torch"])
def test_logits_are_those_of_peft(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All adapters in one step, beside the model alone."""
    settings = {"enable_lora": True, "max_loras": len(NAMES)}
    replica = load(FOLDER / "model", cpu_backend=way, **settings)
    for slot, name in enumerate(NAMES):
        MadeAdapter(FOLDER / name, {}).fill(replica.model_runner, slot)
    found = logits_of(Driver.of(replica), [*range(len(NAMES)), None], monkeypatch)
    assert not torch.allclose(found[0], found[-1], atol=0.1)
    for name, own in zip(NAMES, found, strict=False):
        assert_same(own, FOLDER / name)


def assert_same(own: torch.Tensor, folder: Path, lengths: Sequence[int] = LENGTHS) -> None:
    """Compare logits after `lengths` of TOKENS with those of PEFT."""
    rows = [length - 1 for length in lengths]
    expected = load_file(folder / "expected.safetensors")["logits"][rows]
    scale = float(expected.abs().max())
    torch.testing.assert_close(own, expected, atol=1e-4 * scale, rtol=1e-3)
    assert own.argmax(-1).tolist() == expected.argmax(-1).tolist()


TRITON = {"attention_backend": "triton"}
FUSED, TORCH = {"cpu_backend": "fused"}, {"cpu_backend": "torch"}


@pytest.mark.parametrize(
    ("model", "how", "lengths"),
    [
        pytest.param("gpt-oss", FUSED, LENGTHS, marks=needs_kernels),
        pytest.param("olmoe", FUSED, LENGTHS, marks=needs_kernels),
        ("gpt-oss", TORCH, LENGTHS),
        ("olmoe", TORCH, LENGTHS),
        ("olmoe", TRITON, (5,)),
    ],
)
def test_parameters_that_hold_all_experts(
    model: str, how: dict[str, str], lengths: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = FOLDER / "experts" / model
    adapter = MadeAdapter(folder / "adapter", {})
    settings = {"enable_lora": True, "max_loras": 1, "dtype": "float32"}
    replica = load(folder / "model", model_impl="native", **how, **settings)
    adapter.fill(replica.model_runner, 0)
    found = logits_of(Driver.of(replica), [0, None], monkeypatch, lengths)
    assert not torch.allclose(found[0], found[1], atol=0.1)
    assert_same(found[0], folder / "adapter", lengths)
    assert {"gate_up_proj", "down_proj"} <= set(adapter.summary.targets)


@pytest.mark.parametrize(
    ("how", "lengths"),
    [pytest.param(FUSED, LENGTHS, marks=needs_kernels), (TORCH, LENGTHS), (TRITON, (1, 5))],
)
def test_one_matrix_for_embedding_and_logits(
    how: dict[str, str], lengths: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedding has a factor, and logits are capped; each has an adapter of its own."""
    folder = FOLDER / "tied"
    settings = {"enable_lora": True, "max_loras": 2, "dtype": "float32"}
    replica = load(folder / "model", model_impl="native", **how, **settings)
    MadeAdapter(folder / "adapter", {}).fill(replica.model_runner, 1)
    found = logits_of(Driver.of(replica), [1, None], monkeypatch, lengths)
    assert not torch.allclose(found[0], found[1], atol=0.1)
    assert_same(found[0], folder / "adapter", lengths)


def test_what_peft_wrote_is_read() -> None:
    found = {name: check_adapter(FOLDER / name, AdapterBounds()) for name in NAMES}
    assert found["patterns"].rank == 6
    assert found["all-linear"].targets == found["listed"].targets
    assert found["one-layer"].config.layers == {1}
    factors = {one.name: one.scaling for one in found["patterns"].modules}
    assert factors["model.layers.1.self_attn.q_proj"] == pytest.approx(2 / 3**0.5)
    assert factors["model.layers.1.self_attn.v_proj"] == pytest.approx(5 / 6**0.5)
