"""`pagewire convert`: pickled checkpoints become safetensors with the same tensors, or a line."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pagewire.cli import main
from pagewire_worker.convert.__main__ import PICKLE_INDEX
from support.checkpoints.checkpoints import make_checkpoint


@pytest.fixture
def pickled(tmp_path: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """A folder with pytorch_model.bin, and its tensors."""
    folder = make_checkpoint(tmp_path / "in")
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder, tensors


def check_same(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_a_checkpoint_is_converted(pickled: tuple[Path, dict[str, torch.Tensor]]) -> None:
    folder, tensors = pickled
    out = folder.parent / "new" / "out"
    assert main(["convert", str(folder), str(out)]) == 0
    check_same(out, tensors)
    names = {file.name for file in folder.iterdir()} - {"pytorch_model.bin"}
    assert {file.name for file in out.iterdir()} == names | {"model.safetensors"}


def test_shards_keep_their_index_and_ties_and_views_their_values(
    pickled: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    folder, tensors = pickled
    first, *others = sorted(tensors)
    torch.save({first: tensors[first], "tied": tensors[first]}, folder / "a.bin")
    wide = torch.arange(12.0).reshape(3, 4)
    rest = {name: tensors[name] for name in others}
    torch.save({**rest, "view": wide[:, 1:3]}, folder / "b.bin")
    weight_map = {**dict.fromkeys([first, "tied"], "a.bin"), **dict.fromkeys(others, "b.bin")}
    (folder / "pytorch_model.bin").unlink()
    (folder / PICKLE_INDEX).write_text(json.dumps({"weight_map": weight_map}))
    out = folder.parent / "out"
    assert main(["convert", str(folder), str(out)]) == 0
    check_same(out, {**tensors, "view": wide[:, 1:3]})
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == {*tensors, "view"}
    assert not (out / PICKLE_INDEX).exists()


class Harmful:
    """A pickle that would leave a file behind if it were run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_code_in_a_pickle_is_not_run(
    pickled: tuple[Path, dict[str, torch.Tensor]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, tensors = pickled
    proof = folder.parent / "was-run"
    torch.save({**tensors, "x": Harmful(proof)}, folder / "pytorch_model.bin")
    out = folder.parent / "out"
    assert main(["convert", str(folder), str(out)]) == 1
    assert not proof.exists()
    assert not out.exists()
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("pagewire convert: error: IN: ")
    assert "is not tensors alone" in error


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"", "cannot be read"), (b"garbage", "not tensors alone"), (b"PK\x03\x04", "cannot be read")],
)
def test_what_is_no_pickle_is_one_line(
    pickled: tuple[Path, dict[str, torch.Tensor]],
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    line: str,
) -> None:
    folder, _ = pickled
    (folder / "pytorch_model.bin").write_bytes(content)
    assert main(["convert", str(folder), str(folder.parent / "out")]) == 1
    assert line in capsys.readouterr().err


def test_folders_that_cannot_be_converted(
    pickled: tuple[Path, dict[str, torch.Tensor]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = pickled
    other = make_checkpoint(folder.parent / "other")
    for words, line in (
        ((folder, other), "exists; name a new folder"),
        ((other, folder.parent / "out"), "has safetensors already"),
        (
            (folder.parent / "none", folder.parent / "out"),
            "neither a folder nor a GGUF file",
        ),
    ):
        assert main(["convert", *map(str, words)]) == 1
        assert line in capsys.readouterr().err
