"""Writes a GGUF file as a checkpoint of safetensors, with configuration and tokenizer.

Names and formats are those of llama.cpp (gguf-py/gguf/constants.py, convert_hf_to_gguf.py). The
package gguf reads the file and dequantizes its blocks, transformers makes the tokenizer. Tensors
are converted one at a time; a file of the target is in memory until it is written.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.folder import INDEX_NAME, SINGLE_NAME
from pagewire_worker.convert.gguf_config import Metadata, config_of, eos_of, layer_of, tensor_name
from pagewire_worker.convert.gguf_experts import EXPERTS, NamedTensor, named, single_experts
from pagewire_worker.convert.gguf_tokenizer import READ_APART, cut_text_of, tokenizer_file

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


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A model in a GGUF file.

    Attributes:
        tensors: Of the package gguf, by llama.cpp's names.
        config: The config.json that follows from the metadata.
    """

    file: Path
    metadata: Metadata
    tensors: dict[str, Any]
    config: dict[str, Any]

    def named_tensors(self) -> Iterator[NamedTensor]:
        """Yield tensors with the names of transformers, those of experts one by one.

        Raises StartupError for a tensor that the architecture does not have.
        """
        architecture = self.metadata["general.architecture"]
        experts, num_layers = EXPERTS.get(architecture), self.config["num_hidden_layers"]
        for name, tensor in self.tensors.items():
            if layer_of(name) >= num_layers:
                continue  # for several tokens at once
            stacked = None if experts is None else experts.stacked(name)
            if stacked is not None:
                yield from single_experts(*stacked, tensor)
                continue
            wanted = tensor_name(name) or (None if experts is None else experts.single(name))
            if wanted is None:
                raise StartupError(
                    f"{self.file} holds the tensor {name}, which its architecture lacks"
                )
            heads = 0
            if architecture == "llama" and name.endswith("attn_q.weight"):
                heads = self.config["num_attention_heads"]
            elif architecture == "llama" and name.endswith("attn_k.weight"):
                heads = self.config["num_key_value_heads"]
            yield named(wanted, tensor, heads)

    def write_texts(self, target: Path, config: dict[str, Any]) -> None:
        """Write `config`, the tokenizer and the tokens that end an answer into a folder."""
        print(f"{self.file.name}: tokenizer", flush=True)
        if self.metadata["general.architecture"] in READ_APART:
            cut = cut_text_of(self.metadata)
            with tempfile.TemporaryDirectory() as place:
                _write_tokenizer(tokenizer_file(self.metadata, Path(place)), target)
            if cut is not None:
                file = target / "tokenizer.json"
                _write(file, {**json.loads(file.read_text()), "pre_tokenizer": cut})
        else:
            _write_tokenizer(self.file, target)
        _write(target / "config.json", config)
        _write(target / "generation_config.json", {"eos_token_id": eos_of(self.metadata)})


def open_gguf(file: Path) -> GgufModel:
    """Return the model in `file`.

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
        names=stored.keys(),
    )
    return GgufModel(file, metadata, stored, config)


def convert_gguf(file: Path, target: Path) -> None:
    """Write the model in `file` into `target`, an empty folder. Raises StartupError."""
    model = open_gguf(file)
    architecture = model.metadata["general.architecture"]
    if architecture in EXPERTS and not EXPERTS[architecture].can_be_written:
        raise StartupError(
            f"{file}: a model of {architecture} is not written as a checkpoint of bfloat16; serve "
            "the file itself, or give --keep-blocks"
        )
    model.write_texts(target, model.config)
    print(f"{file.name}: {len(model.tensors)} tensors", flush=True)
    write_shards(target, _tensors(model))


def _write_tokenizer(file: Path, target: Path) -> None:
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    except Exception as error:
        raise StartupError(
            f"transformers cannot read the tokenizer of {file}: {_first_line(error)}"
        ) from error
    tokenizer.save_pretrained(target)


def _tensors(model: GgufModel) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors under the names of transformers."""
    from gguf.quants import dequantize

    for one in model.named_tensors():
        try:
            # A copy: floats are views of the mapped file.
            data = dequantize(one.data, one.tensor_type).copy()
        except (NotImplementedError, ValueError) as error:
            kind = one.tensor_type.name
            raise StartupError(f"{model.file}: the tensor {one.name} is {kind}: {error}") from error
        values = torch.from_numpy(data).to(DTYPE)
        yield one.name, _halves(values, one.num_heads) if one.num_heads else values


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
