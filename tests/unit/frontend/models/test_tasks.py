"""Which tasks a model has, as its files say."""

import json
from pathlib import Path

import pytest

from pagewire_frontend.models.tasks import ModelTasks, read_tasks
from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.pooling import PoolingParams
from support.checkpoints.encoder_checkpoints import write_sentence_files


def classifier(**config: object) -> dict[str, object]:
    labels = {"id2label": {"0": "no", "1": "yes"}}
    return {"architectures": ["BertForSequenceClassification"], **labels, **config}


@pytest.mark.parametrize(
    ("architecture", "is_encoder", "generates", "pooling"),
    [
        ("LlamaForCausalLM", False, True, "last"),
        ("GPT2LMHeadModel", False, True, "last"),
        ("MistralModel", False, False, "last"),
        ("Qwen3ForSequenceClassification", False, False, "last"),
        ("BertModel", True, False, "cls"),
        ("XLMRobertaForSequenceClassification", True, False, "cls"),
        ("ModernBertModel", True, False, "cls"),
    ],
)
def test_architectures(
    tmp_path: Path, architecture: str, is_encoder: bool, generates: bool, pooling: str
) -> None:
    tasks = read_tasks(tmp_path, {"architectures": [architecture]})
    assert (tasks.is_encoder, tasks.generates) == (is_encoder, generates)
    assert (tasks.pooling, tasks.is_normalized) == (pooling, True)
    assert bool(tasks.labels) is architecture.endswith("ForSequenceClassification")


@pytest.mark.parametrize(
    ("config", "activation"),
    [
        (classifier(), "softmax"),
        (classifier(id2label={"0": "relevant"}), "sigmoid"),
        (classifier(problem_type="multi_label_classification"), "sigmoid"),
        (classifier(problem_type="regression"), "identity"),
        (
            classifier(sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"}),
            "identity",
        ),
        (
            classifier(sbert_ce_default_activation_function="torch.nn.modules.activation.Sigmoid"),
            "sigmoid",
        ),
    ],
)
def test_activations(tmp_path: Path, config: dict[str, object], activation: str) -> None:
    tasks = read_tasks(tmp_path, config)
    assert tasks.activation == activation
    assert tasks.labels == tuple(config["id2label"].values())


@pytest.mark.parametrize(
    ("pooling", "is_normalized", "kind"),
    [("mean", True, "mean"), ("cls", False, "cls"), ("lasttoken", True, "last")],
)
def test_files_of_sentence_transformers(
    tmp_path: Path, pooling: str, is_normalized: bool, kind: str
) -> None:
    write_sentence_files(tmp_path, pooling=pooling, is_normalized=is_normalized)
    tasks = read_tasks(tmp_path, {"architectures": ["BertModel"]})
    assert tasks.resolved(PoolingParams()) == PoolingParams(pooling=kind, normalize=is_normalized)
    own = PoolingParams(pooling="last", normalize=not is_normalized)
    assert tasks.resolved(own) == own


def test_files_that_are_not_understood(tmp_path: Path) -> None:
    config = {"architectures": ["BertModel"]}
    write_sentence_files(tmp_path)
    settings = tmp_path / "1_Pooling" / "config.json"
    settings.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(StartupError, match="pooling_mode_max_tokens is not supported"):
        read_tasks(tmp_path, config)
    both = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    settings.write_text(json.dumps(both))
    with pytest.raises(StartupError, match="only one of"):
        read_tasks(tmp_path, config)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules.append({"path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(StartupError, match="Dense is not supported"):
        read_tasks(tmp_path, config)
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(StartupError, match="is no JSON"):
        read_tasks(tmp_path, config)
    bad = classifier(sentence_transformers={"activation_fn": "torch.nn.Tanh"})
    with pytest.raises(StartupError, match="Tanh"):
        read_tasks(tmp_path / "elsewhere", bad)


def test_class_scores_are_never_normalized() -> None:
    resolved = ModelTasks(labels=("a",)).resolved(PoolingParams(pooling="scores"))
    assert resolved.normalize is False
