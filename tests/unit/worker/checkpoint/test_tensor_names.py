"""Tensors of a text model beside towers: names of all versions of transformers, and what is not
read."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.config import read_config
from pagewire_worker.checkpoint.tensor_names import TensorNames
from pagewire_worker.checkpoint.weights import SafetensorsReader
from pagewire_worker.models.registry import native_form
from support.cells.worker_driver import Driver, load
from support.oracles.nested_checkpoints import (
    change_config,
    make_nested_checkpoint,
    rename_tensors,
)

PROMPT = [3, 7, 5, 11]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_nested_checkpoint(tmp_path, "mistral3")


def newer(name: str) -> str:
    """Return the name that transformers 4.52 to 4.57 may write."""
    if name.startswith("language_model.lm_head"):
        return name.removeprefix("language_model.")
    return f"model.{name.replace('language_model.model', 'language_model')}"


def flat(name: str) -> str:
    return name.removeprefix("language_model.")


def tokens(folder: Path) -> list[int]:
    replica = load(folder, max_model_len=64, model_impl="native")
    return Driver.of(replica).generate([PROMPT], max_tokens=16)[0]


def reader_of(folder: Path) -> SafetensorsReader:
    names = native_form(read_config(folder)).names
    return SafetensorsReader(folder, torch.device("cpu"), torch.float32, names=names)


def add_tensors(folder: Path, **tensors: Any) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), **tensors}, path)


@pytest.mark.parametrize("rename", [newer, flat])
def test_names_of_other_versions_are_the_same_model(folder: Path, rename: Any) -> None:
    expected = tokens(folder)
    before = load_file(folder / "model.safetensors")
    rename_tensors(folder, rename)
    assert set(before).isdisjoint(set(load_file(folder / "model.safetensors"))) is (rename is newer)
    assert tokens(folder) == expected


def test_tensors_of_towers_are_neither_read_nor_counted(folder: Path) -> None:
    expected = tokens(folder)
    path = folder / "model.safetensors"
    # Of a type that no decoder reads.
    changed = {
        name: tensor.to(torch.int64) if name.startswith(("vision", "multi")) else tensor
        for name, tensor in load_file(path).items()
    }
    save_file(changed, path)
    left = reader_of(folder).not_taken
    assert len(left) == 3 * 9 + 3
    assert all(name.startswith(("model.", "lm_head.")) for name in left)
    assert tokens(folder) == expected


def test_a_checkpoint_without_its_text_is_named(folder: Path) -> None:
    rename_tensors(folder, lambda name: name.replace("language_model.", "talker."))
    with pytest.raises(StartupError, match=r"holds no tensors of a text model .* only multi_modal"):
        load(folder, model_impl="native")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("model.language_model.other.weight", "does not have: model.other.weight"),
        ("talker.weight", "does not have: talker.weight"),
        ("lm_head.weight", "two tensors in one place: language_model.lm_head.weight and lm_head"),
    ],
)
def test_tensors_without_a_place_end_the_start(folder: Path, name: str, line: str) -> None:
    add_tensors(folder, **{name: torch.zeros(512, 64)})
    with pytest.raises(StartupError, match=line):
        load(folder, model_impl="native")


def test_one_missing_tensor_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    kept = {
        name: one for name, one in load_file(path).items() if not name.endswith("model.norm.weight")
    }
    save_file(kept, path)
    with pytest.raises(StartupError, match=r"lacks the tensor model\.norm\.weight"):
        load(folder, model_impl="native")


def test_a_stored_output_counts_where_two_fields_contradict_each_other(folder: Path) -> None:
    expected = tokens(folder)
    change_config(folder, lambda data: {**data, "tie_word_embeddings": True})
    assert tokens(folder) == expected
    path = folder / "model.safetensors"
    kept = {name: one for name, one in load_file(path).items() if "lm_head" not in name}
    save_file(kept, path)
    reader = reader_of(folder)
    output, embedding = (
        reader.take(name, (512, 64)) for name in ("lm_head.weight", "model.embed_tokens.weight")
    )
    assert torch.equal(output, embedding)


def test_a_text_model_alone_shares_nothing(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="no tensors of a text model"):
        TensorNames().places(tmp_path, ["lm_head.weight"])
