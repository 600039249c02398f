"""Writes a GGUF file as a checkpoint of safetensors, with configuration and tokenizer.

Names and formats are those of llama.cpp (gguf-py/gguf/constants.py, convert_hf_to_gguf.py). The
package gguf reads the file and dequantizes its blocks, transformers makes the tokenizer. Tensors
are converted one at a time; a file of the target is in memory until it is written.
"""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.folder import INDEX_NAME, SINGLE_NAME
from pagewire_worker.convert.gguf_config import Metadata, config_of, eos_of, tensor_name

MAGIC: Final = b"GGUF"
DTYPE: Final = torch.bfloat16
"""Of the weights that are written: quantized ones have no more digits."""
SHARD_BYTES: Final = 2 * 1024**3
"""Bytes of a file of weights after which the next one begins."""


def find_gguf(source: Path) -> Path | None:
    """Return the GGUF file that `source` is or holds; None without one.

    Raises:
        StartupError: The folder holds several; the message names them.
    """
    if source.is_file():
        return source
    files = sorted(source.glob("*.gguf"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:4])
        raise StartupError(f"{source} holds several GGUF files ({names}); name one")
    return files[0] if files else None


def convert_gguf(file: Path, target: Path) -> None:
    """Write the model in `file` into `target`, an empty folder.

    Raises:
        StartupError: It is no GGUF file, or holds a model that is not converted.
    """
    with file.open("rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            raise StartupError(f"{file} is no GGUF file")
    if find_spec("gguf") is None:
        raise StartupError("GGUF files need the package gguf: pip install 'pagewire[gguf]'")
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:
        # It raises whatever its parts raise, for files of any content.
        raise StartupError(f"{file} cannot be read: {_first_line(error)}") from error
    stored = {tensor.name: tensor for tensor in reader.tensors}
    factors = stored.pop("rope_freqs.weight", None)
    config = config_of(
        metadata,
        is_tied="output.weight" not in stored,
        rope_factors=None if factors is None else [float(one) for one in factors.data],
    )
    print(f"{file.name}: tokenizer", flush=True)
    _write_tokenizer(file, target)
    _write(target / "config.json", config)
    _write(target / "generation_config.json", {"eos_token_id": eos_of(metadata)})
    print(f"{file.name}: {len(stored)} tensors", flush=True)
    write_shards(target, _tensors(file, stored, metadata, config))


def _write_tokenizer(file: Path, target: Path) -> None:
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    except Exception as error:
        raise StartupError(
            f"transformers cannot read the tokenizer of {file}: {_first_line(error)}"
        ) from error
    tokenizer.save_pretrained(target)


def _tensors(
    file: Path, stored: dict[str, Any], metadata: Metadata, config: dict[str, Any]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors under the names of transformers."""
    from gguf.quants import dequantize

    for name, tensor in stored.items():
        wanted = tensor_name(name)
        if wanted is None:
            raise StartupError(f"{file} holds the tensor {name}, which its architecture lacks")
        try:
            # A copy: floats are views of the mapped file.
            data = dequantize(tensor.data, tensor.tensor_type).copy()
        except (NotImplementedError, ValueError) as error:
            kind = tensor.tensor_type.name
            raise StartupError(f"{file}: the tensor {name} is {kind}: {error}") from error
        values = torch.from_numpy(data).to(DTYPE)
        if metadata["general.architecture"] == "llama" and name.endswith(
            ("attn_q.weight", "attn_k.weight")
        ):
            is_query = name.endswith("attn_q.weight")
            heads = config["num_attention_heads" if is_query else "num_key_value_heads"]
            values = _halves(values, heads)
        yield wanted, values


def _halves(weight: Tensor, num_heads: int) -> Tensor:
    """Return rows of heads in the order of transformers: llama.cpp rotates neighbours, and has
    moved the second half of a head between the first (LlamaModel.permute)."""
    rows = weight.view(num_heads, -1, 2, weight.shape[1])
    return rows.transpose(1, 2).reshape(weight.shape)


def write_shards(target: Path, tensors: Iterator[tuple[str, Tensor]]) -> None:
    """Write tensors into one file, or several and their index."""
    weights: dict[str, str] = {}
    held: dict[str, Tensor] = {}
    total = num_files = 0

    def flush() -> None:
        nonlocal num_files
        num_files += 1
        name = f"model-{num_files:05}.safetensors"
        save_file(held, target / name, metadata={"format": "pt"})
        weights.update(dict.fromkeys(held, name))
        held.clear()

    for name, tensor in tensors:
        held[name] = tensor.contiguous()
        total += tensor.nbytes
        if sum(one.nbytes for one in held.values()) >= SHARD_BYTES:
            flush()
    if held:
        flush()
    if num_files == 1:
        (target / "model-00001.safetensors").rename(target / SINGLE_NAME)
        return
    _write(target / INDEX_NAME, {"metadata": {"total_size": total}, "weight_map": weights})


def _write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n")


def _first_line(error: Exception) -> str:
    return (next(iter(str(error).splitlines()), "") or type(error).__name__)[:300]
