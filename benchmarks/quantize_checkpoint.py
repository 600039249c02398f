"""Write a checkpoint in a quantized format by rounding, so that formats can be compared.

    python benchmarks/quantize_checkpoint.py checkpoints/small checkpoints/w4a16 --format w4a16

No calibration: what AWQ or GPTQ gain by it is not in the result. w4a16 and w8a16 are those of
compressed-tensors (groups of 128, no zero points; the embedding and the output layer stay as they
are), fp8 has a scale per output. The others are blocks of a GGUF file, rounded by the package gguf;
the embedding is in blocks, too.
"""

import argparse
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pagewire_worker.checkpoint.gguf.index import write_index
from pagewire_worker.convert.gguf_folder import place_of

GROUP = 128
FP8_MAX = 448.0
GGUF_KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")

Tensors = dict[str, torch.Tensor]


def packed_integers(name: str, weight: torch.Tensor, bits: int) -> Tensors:
    """Return a matrix as pack-quantized of compressed-tensors stores it."""
    group = next(size for size in (GROUP, 64, 32) if weight.shape[1] % size == 0)
    groups = weight.float().unflatten(1, (-1, group))
    scales = groups.abs().amax(dim=2, keepdim=True) / (2 ** (bits - 1) - 1)
    scales = scales.to(torch.bfloat16).float()
    codes = ((groups / scales).round() + 2 ** (bits - 1)).clamp(0, 2**bits - 1).to(torch.int64)
    words = codes.flatten(1).unflatten(1, (-1, 32 // bits))
    words = (words << torch.arange(0, 32, bits)).sum(dim=2)
    return {
        # The highest bit of a word is the sign of an int32.
        f"{name}_packed": ((words + 2**31) % 2**32 - 2**31).to(torch.int32),
        f"{name}_scale": scales.squeeze(2).to(torch.bfloat16),
        f"{name}_shape": torch.tensor(weight.shape),
    }


def floats_of_8_bits(name: str, weight: torch.Tensor) -> Tensors:
    """Return a matrix in float8_e4m3fn with a scale per output."""
    scales = weight.float().abs().amax(dim=1, keepdim=True) / FP8_MAX
    return {name: (weight.float() / scales).to(torch.float8_e4m3fn), f"{name}_scale": scales}


def integers_config(bits: int) -> dict[str, Any]:
    """Return the quantization_config of packed integers."""
    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": GROUP}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


PLAIN: dict[str, tuple[Callable[[str, torch.Tensor], Tensors], dict[str, Any]]] = {
    "w4a16": (lambda name, weight: packed_integers(name, weight, 4), integers_config(4)),
    "w8a16": (lambda name, weight: packed_integers(name, weight, 8), integers_config(8)),
    "fp8": (floats_of_8_bits, {"quant_method": "fp8", "activation_scheme": "dynamic"}),
}


def stored(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a checkpoint of one file."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118 - it is no dictionary
            yield name, file.get_tensor(name)


def write_plain(source: Path, target: Path, name: str) -> dict[str, Any]:
    """Write safetensors, and return the quantization_config."""
    convert, config = PLAIN[name]
    tensors: Tensors = {}
    for key, tensor in stored(source):
        tensors.update(convert(key, tensor) if key.endswith("_proj.weight") else {key: tensor})
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    return config


def write_blocks(source: Path, target: Path, kind: str) -> dict[str, Any]:
    """Write a GGUF file and its index, and return the quantization_config."""
    import gguf
    from gguf.quants import quantize

    file = target / "model.gguf"
    writer = gguf.GGUFWriter(str(file), "llama")
    for name, tensor in stored(source):
        data = tensor.float().numpy()
        if data.ndim == 1:
            writer.add_tensor(name, data)
        else:
            blocks = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, quantize(data, blocks), raw_dtype=blocks)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    places = {one.name: place_of(one) for one in gguf.GGUFReader(file).tensors}
    write_index(target / "model.gguf.index.json", file, places)
    return {"quant_method": "gguf"}


def main() -> None:
    """Write the folder named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("source", type=Path, help="a checkpoint of one file")
    parser.add_argument("target", type=Path, help="the folder to make")
    parser.add_argument("--format", choices=(*PLAIN, *GGUF_KINDS), required=True)
    arguments = parser.parse_args()
    source, target = arguments.source, arguments.target
    target.mkdir(parents=True)
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, target / file.name)
    write = write_plain if arguments.format in PLAIN else write_blocks
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = write(source, target, arguments.format)
    (target / "config.json").write_text(json.dumps(config, indent=2))
    print(target)


if __name__ == "__main__":
    main()
