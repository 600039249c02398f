"""GGUF files are read as they are: blocks stand for what llama.cpp's own package says, and a model
computes with them what it computes with those values."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pagewire.converter import gguf_folder
from pagewire.models import served_models
from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.digest_cache import DigestCache
from pagewire_worker.checkpoint.fingerprint import model_fingerprint
from pagewire_worker.checkpoint.gguf.blocks import BLOCKS, read_blocks
from pagewire_worker.convert.gguf_folder import describe_gguf
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.backend import FusedBackend
from pagewire_worker.cpu_kernels.library import load_library
from pagewire_worker.cpu_kernels.packing import Part, Storage
from support.cells.worker_driver import Driver, load
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.gguf_files import make_source, rounded, write_blocks, write_gguf
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import make_family_checkpoint

SHAPE = {"heads": 4, "kv_heads": 2, "hidden": 64}
PROMPTS = [[1, 5, 9, 13], [7], list(range(3, 40))]


def random_blocks(kind: str, rows: int, num_blocks: int) -> torch.Tensor:
    """Return bytes whose scales of 16 bits are small numbers."""
    generator = torch.Generator().manual_seed(1)
    size = (rows, num_blocks, BLOCKS[kind].fields.itemsize)
    data = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
    numbers = torch.randn((rows, num_blocks, 2), generator=generator).half().view(torch.uint8)
    if kind == "MXFP4":
        data[..., 0] = 120 + data[..., 0] % 16
    elif kind == "Q6_K":
        data[..., -2:] = numbers[..., :2]
    else:
        is_pair = kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
        data[..., : 4 if is_pair else 2] = numbers[..., : 4 if is_pair else 2]
    return data.flatten(1)


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_stand_for_what_the_package_says(kind: str) -> None:
    data = random_blocks(kind, 5, 3)
    shape = (5, 3 * BLOCKS[kind].size)
    found = read_blocks(kind, data, shape, "it")
    assert isinstance(found, CodedMatrix)
    expected = gguf.quants.dequantize(data.numpy(), gguf.GGMLQuantizationType[kind])
    np.testing.assert_allclose(found.dense().numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("kind", "bits"), [("Q4_K", 4.625), ("Q5_K", 8.625), ("Q6_K", 8.5625)])
def test_small_scales_stay_small(kind: str, bits: float) -> None:
    """A weight on the kernels takes its code, and its part of small scales and of their factors."""
    shape = (64, 3 * BLOCKS[kind].size)
    found = read_blocks(kind, random_blocks(kind, 64, 3), shape, "it")
    assert isinstance(found, CodedMatrix)
    storage = Storage.of_parts(abi.BFLOAT16, *shape, [Part(found)])
    whole = load_library().pw_weight_bytes(storage.structure())
    assert whole * 8 / (shape[0] * shape[1]) == bits
    assert found.factored is not None
    products = found.factored.scale_factors.float().repeat_interleave(found.factored.groups, 1)
    assert torch.equal(found.scales, products * found.factored.scales)


def test_other_formats_are_dequantized_by_the_package() -> None:
    data = torch.randint(0, 256, (4, 84), dtype=torch.uint8)
    data[:, -4:] = torch.tensor([0, 60, 0, 56])  # two scales
    found = read_blocks("Q2_K", data, (4, 256), "it")
    assert isinstance(found, torch.Tensor)
    assert found.shape == (4, 256)
    with pytest.raises(StartupError, match="the tensor it is Q9_X"):
        read_blocks("Q9_X", data, (4, 256), "it")


def test_rows_of_another_size_are_refused() -> None:
    with pytest.raises(StartupError, match="blocks of 32 in 18 bytes"):
        read_blocks("Q4_0", torch.zeros((2, 20), dtype=torch.uint8), (2, 32), "it")


def described(folder: Path, architecture: str, kind: str) -> tuple[Path, Path]:
    """Return folders of one model: the GGUF file as it is, and its values in float32."""
    checkpoint = make_source(folder / "checkpoint", architecture)
    write_gguf(folder / "m.gguf", checkpoint, kind)
    made = folder / "made"
    made.mkdir()
    describe_gguf(folder / "m.gguf", made, is_linked=False)
    values = {name: torch.from_numpy(one.copy()) for name, one in rounded(checkpoint, kind).items()}
    save_file(values, checkpoint / "model.safetensors")
    return made, checkpoint


@pytest.mark.parametrize("kernels", ["fused", "torch"])
@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("LlamaForCausalLM", "Q4_0"),
        ("Qwen2ForCausalLM", "Q8_0"),
        ("Qwen3ForCausalLM", "Q5_1"),
        ("LlamaForCausalLM", "Q4_1"),
        ("Qwen2ForCausalLM", "F16"),
        ("mixtral", "Q4_0"),
        ("qwen2_moe", "Q8_0"),
        ("qwen3_moe", "Q4_1"),
        ("gpt_oss", "MXFP4"),
        ("olmoe", "Q5_0"),
        ("glm4_moe", "Q8_0"),
        ("deepseek_v2", "Q8_0"),
        ("deepseek_v3", "Q4_1"),
    ],
)
def test_a_model_computes_with_the_values_of_the_file(
    architecture: str, kind: str, kernels: str, tmp_path: Path
) -> None:
    made, checkpoint = described(tmp_path, architecture, kind)
    drivers = [
        Driver.of(load(folder, cpu_backend=kernels, dtype="float32"))
        for folder in (made, checkpoint)
    ]
    found, expected = (one.generate(PROMPTS, max_tokens=12) for one in drivers)
    assert found == expected
    alone = [drivers[0].generate([prompt], max_tokens=12)[0] for prompt in PROMPTS]
    assert alone == found


TRITON = {
    "attention_backend": "triton",
    "max_num_batched_tokens": 8,
    "max_num_seqs": 2,
    "max_model_len": 16,
}


@pytest.mark.usefixtures("poisoned_kernels")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {"cpu_backend": "fused"}) for name in ("phi3", "glm4", "olmo2", "starcoder2")),
        ("glm4", TRITON),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value.values())),
)
def test_codes_of_merged_and_reordered_matrices(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """Rows are cut and put in order together with their scales and offsets."""
    checkpoint = make_family_checkpoint(tmp_path, name)
    coded = write_blocks(tmp_path / "coded", checkpoint, "Q4_1")
    values = {n: torch.from_numpy(one.copy()) for n, one in rounded(checkpoint, "Q4_1").items()}
    save_file(values, checkpoint / "model.safetensors")
    prompts, max_tokens = (PROMPTS[:2], 1) if settings is TRITON else (PROMPTS, 12)
    found, expected = (
        Driver.of(load(folder, dtype="float32", **settings)).generate(
            prompts, max_tokens=max_tokens, budget=8 if settings is TRITON else 64
        )
        for folder in (coded, checkpoint)
    )
    assert found == expected


@needs_kernels
@pytest.mark.parametrize("name", ["olmo2", "glm4"])
def test_parts_in_other_blocks_keep_them(name: str, tmp_path: Path) -> None:
    """As llama.cpp writes Q4_K_M: values of attention have more bits than queries and keys."""
    checkpoint = make_family_checkpoint(tmp_path, name)
    others = {"v_proj.weight": "Q8_0"}
    coded = write_blocks(tmp_path / "coded", checkpoint, "Q4_1", others)
    values = rounded(checkpoint, "Q4_1", others)
    save_file({n: torch.from_numpy(one.copy()) for n, one in values.items()}, coded / "v.tmp")
    (coded / "v.tmp").rename(checkpoint / "model.safetensors")
    one, other = (
        Driver.of(load(folder, dtype="float32", cpu_backend="fused"))
        for folder in (coded, checkpoint)
    )
    backend = one.model_runner.backend
    assert isinstance(backend, FusedBackend)
    kinds = [part.storage.kind for part in backend.decoder.layers[0].qkv]
    assert kinds == [abi.CODES4, abi.CODES8]
    found = one.generate(PROMPTS, max_tokens=12)
    assert found == other.generate(PROMPTS, max_tokens=12)
    assert found == [one.generate([prompt], max_tokens=12)[0] for prompt in PROMPTS]


def test_a_file_is_described_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    checkpoint = make_checkpoint(tmp_path / "c", architecture="Qwen2ForCausalLM", **SHAPE)
    file = tmp_path / "small.gguf"
    write_gguf(file, checkpoint, "Q8_0")
    [model] = served_models([str(file)], None)
    assert model.name == "small"
    folder = Path(model.path)
    assert (folder / "model.gguf").resolve() == file
    made = (folder / "config.json").stat().st_mtime_ns
    assert gguf_folder(file) == folder
    assert (folder / "config.json").stat().st_mtime_ns == made
    file.write_bytes(b"GGUF" + file.read_bytes()[4:] + b"x")
    other = gguf_folder(file)
    assert other != folder
    assert not folder.exists()  # at most one folder per file
    assert list((tmp_path / "cache" / "pagewire" / "gguf").glob("*/small")) == [other]
    file.write_bytes(b"what?")
    with pytest.raises(StartupError, match=r"--model: .*small.gguf is no GGUF file"):
        served_models([str(file)], None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.pop("model.norm.weight"), "lacks the tensor model.norm.weight"),
        (lambda index: index["model.norm.weight"].update(shape=[32]), "has shape .32."),
        (lambda index: index["model.norm.weight"].update(kind="Q8_0"), "has type Q8_0"),
        (lambda index: index["model.norm.weight"].update(kind="F16"), "ask for 128"),
        (lambda index: index["model.norm.weight"].update(shape=[0]), "cannot have 256 bytes"),
        (lambda index: index["model.norm.weight"].update(offset=10**9), "ends after the file"),
        (lambda index: index["model.norm.weight"].pop("kind"), "is no index of a GGUF file"),
        (lambda index: index.update(more=index["model.norm.weight"]), "does not have: more"),
        (
            lambda index: index["model.layers.0.mlp.up_proj.weight"].update(shape=[64, 96]),
            "model.layers.0.mlp.up_proj.weight has shape",
        ),
    ],
)
def test_a_broken_index_is_refused(change: object, message: str, tmp_path: Path) -> None:
    made, _ = described(tmp_path, "Qwen2ForCausalLM", "Q8_0")
    path = made / "model.gguf.index.json"
    index = json.loads(path.read_text())
    change(index["tensors"])  # type: ignore[operator]
    path.write_text(json.dumps(index))
    with pytest.raises(StartupError, match=message):
        load(made)


def test_a_file_that_was_replaced_is_refused(tmp_path: Path) -> None:
    """Its tensors may lie elsewhere; a worker that starts anew must not read others for them."""
    described(tmp_path, "Qwen2ForCausalLM", "Q8_0")
    linked = tmp_path / "linked"
    linked.mkdir()
    file = tmp_path / "m.gguf"
    describe_gguf(file, linked, is_linked=True)
    load(linked)
    data = file.read_bytes()
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    with pytest.raises(StartupError, match=r"has changed since model.gguf.index.json was made"):
        load(linked)
    file.write_bytes(data[:-1])
    with pytest.raises(StartupError, match="has changed since"):
        load(tmp_path / "made")


def test_every_byte_of_the_file_is_in_the_fingerprint(tmp_path: Path) -> None:
    made, _ = described(tmp_path, "Qwen2ForCausalLM", "Q8_0")
    other = shutil.copytree(made, tmp_path / "other")
    data = bytearray((other / "model.gguf").read_bytes())
    data[-1] ^= 1
    (other / "model.gguf").write_bytes(data)
    cache = DigestCache(tmp_path / "cache")
    prints = [model_fingerprint(folder, cache) for folder in (made, other)]
    assert prints[0] != prints[1]


def test_a_config_that_says_gguf_without_an_index_is_refused(tmp_path: Path) -> None:
    _, checkpoint = described(tmp_path, "Qwen2ForCausalLM", "Q8_0")
    config = json.loads((checkpoint / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gguf"}
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(StartupError, match="serve the GGUF file itself"):
        load(checkpoint)
