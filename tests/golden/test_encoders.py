"""States, vectors and class scores of encoders and classifiers equal those of transformers, alone
and beside others."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.encoders.backend import EncoderBackend
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.checkpoints.encoder_checkpoints import CLS, MAX_POSITIONS, SEP, VOCAB, make_encoder

LENGTHS = (2, 3, 9, 31, 64, 100, MAX_POSITIONS)
ENCODERS = ("BertModel", "RobertaModel", "XLMRobertaModel", "ModernBertModel")
CLASSIFIERS = (
    ("BertForSequenceClassification", 1, {}),
    ("RobertaForSequenceClassification", 3, {}),
    ("XLMRobertaForSequenceClassification", 1, {"hidden_act": "gelu_new"}),
    ("ModernBertForSequenceClassification", 3, {"classifier_pooling": "mean"}),
    ("ModernBertForSequenceClassification", 2, {"norm_bias": True, "attention_bias": True}),
)


def make_prompts() -> list[list[int]]:
    generator = random.Random(5)
    inner = [[generator.randrange(5, VOCAB) for _ in range(length - 2)] for length in LENGTHS]
    return [[CLS, *prompt, SEP] for prompt in inner]


def run(
    folder: Path, params: list[PoolingParams], *, together: bool, **settings: object
) -> list[np.ndarray]:
    """Return the outcome of every prompt."""
    replica = load(folder, dtype="float32", max_model_len=MAX_POSITIONS, **settings)
    info = replica.info
    driver = Driver.of(replica)
    waiting = [
        Running(
            slot,
            prompt,
            GREEDY,
            0,
            pooling=one,
            num_values=one.num_values(len(prompt), info.embedding_size, info.num_labels),
        )
        for slot, (prompt, one) in enumerate(zip(make_prompts(), params, strict=True))
    ]
    for group in [waiting] if together else [[one] for one in waiting]:
        driver.finish(group, budget=replica.info.max_num_batched_tokens)
    return [one.vector for one in waiting]


def states_of(folder: Path, architecture: str, second: int = 0) -> list[torch.Tensor]:
    """Return transformers' states, or logits, of every prompt."""
    model = getattr(transformers, architecture).from_pretrained(folder).eval()
    found = []
    for prompt in make_prompts():
        extra = {}
        if second and len(prompt) > second:
            types = [int(place >= second) for place in range(len(prompt))]
            extra = {"token_type_ids": torch.tensor([types])}
        with torch.inference_mode():
            output = model(torch.tensor([prompt]), **extra)
        states = output.logits if hasattr(output, "logits") else output.last_hidden_state
        found.append(states[0])
    return found


@pytest.mark.parametrize("architecture", ENCODERS)
def test_vectors_of_encoders(tmp_path: Path, architecture: str) -> None:
    folder = make_encoder(tmp_path, architecture)
    kinds = [PoolingParams(pooling=k, normalize=False) for k in ("cls", "mean", "tokens", "last")]
    params = [kinds[place % 4] for place in range(len(LENGTHS))]
    together, alone = (run(folder, params, together=flag) for flag in (True, False))
    for one, states, found, single in zip(
        params, states_of(folder, architecture), together, alone, strict=True
    ):
        wanted = {
            "cls": lambda s=states: s[0],
            "last": lambda s=states: s[-1],
            "mean": lambda s=states: s.mean(0),
            "tokens": lambda s=states: s.reshape(-1),
        }[one.kind]()
        np.testing.assert_allclose(found, wanted.numpy(), atol=2e-5)
        assert np.array_equal(found, single), "not one bit depends on the batch"


@pytest.mark.parametrize(("architecture", "num_labels", "config"), CLASSIFIERS)
def test_class_scores(
    tmp_path: Path, architecture: str, num_labels: int, config: dict[str, object]
) -> None:
    folder = make_encoder(tmp_path, architecture, num_labels=num_labels, **config)
    second = 5 if architecture.startswith("Bert") else 0
    params = [
        PoolingParams(pooling="scores", second_start=second if length > second else 0)
        for length in LENGTHS
    ]
    together, alone = (run(folder, params, together=flag) for flag in (True, False))
    for wanted, found, single in zip(
        states_of(folder, architecture, second), together, alone, strict=True
    ):
        assert found.shape == (num_labels,)
        np.testing.assert_allclose(found, wanted.numpy(), atol=2e-5)
        assert np.array_equal(found, single)


@pytest.mark.parametrize("backend", ["torch", "fused"])
@pytest.mark.parametrize(
    ("architecture", "num_labels"),
    [
        ("LlamaForSequenceClassification", 3),
        ("Qwen2ForSequenceClassification", 1),
        ("Qwen3ForSequenceClassification", 1),
        ("MistralForSequenceClassification", 2),
        ("MistralModel", None),
        ("Qwen3Model", None),
    ],
)
def test_decoders_without_logits(
    tmp_path: Path, architecture: str, num_labels: int | None, backend: str
) -> None:
    """The kernels for CPUs work with sums of another order."""
    folder = make_encoder(tmp_path, architecture, num_labels=num_labels)
    kind = "last" if num_labels is None else "scores"
    params = [PoolingParams(pooling=kind, normalize=False)] * len(LENGTHS)
    found = run(folder, params, together=True, cpu_backend=backend)
    for wanted, one in zip(states_of(folder, architecture), found, strict=True):
        expected = wanted if num_labels is not None else wanted[-1]
        np.testing.assert_allclose(one, expected.numpy(), atol=1e-4)


@pytest.mark.parametrize("architecture", ["BertModel", "ModernBertModel"])
def test_prompts_in_one_batch_as_on_a_gpu(
    tmp_path: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_encoder(tmp_path, architecture)
    params = [PoolingParams(pooling="mean", normalize=False)] * len(LENGTHS)
    monkeypatch.setattr(EncoderBackend, "is_exact", False)
    found = run(folder, params, together=True)
    for states, one in zip(states_of(folder, architecture), found, strict=True):
        np.testing.assert_allclose(one, states.mean(0).numpy(), atol=2e-5)
