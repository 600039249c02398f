"""Makes a GGUF file that holds the tokenizer of another one and nothing else.

transformers reads a tokenizer together with the configuration of its model, and fails for some.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pagewire_worker.convert.gguf_config import Metadata

READ_APART: Final = ("gpt-oss",)
"""Architectures whose configuration transformers 5 fails to read: it takes keys for values."""

_ARCHITECTURE: Final = "qwen2"
"""In the place of the model's own: keys of the tokenizer itself say of which kind it is."""

_WRITERS: Final[Mapping[str, Callable[[Any, Any], None]]] = {
    "ggml.model": lambda writer, value: writer.add_tokenizer_model(value),
    "ggml.pre": lambda writer, value: writer.add_tokenizer_pre(value),
    "ggml.tokens": lambda writer, value: writer.add_token_list(value),
    "ggml.token_type": lambda writer, value: writer.add_token_types(value),
    "ggml.merges": lambda writer, value: writer.add_token_merges(value),
    "ggml.bos_token_id": lambda writer, value: writer.add_bos_token_id(value),
    "ggml.eos_token_id": lambda writer, value: writer.add_eos_token_id(value),
    "ggml.padding_token_id": lambda writer, value: writer.add_pad_token_id(value),
    "ggml.add_bos_token": lambda writer, value: writer.add_add_bos_token(value),
    "chat_template": lambda writer, value: writer.add_chat_template(value),
}


def tokenizer_file(metadata: Metadata, folder: Path) -> Path:
    """Write the file into `folder` and return it.

    Args:
        metadata: Of the model's file, by name.
    """
    from gguf import GGUFWriter

    file = folder / "tokenizer.gguf"
    writer = GGUFWriter(str(file), _ARCHITECTURE)
    for key, write in _WRITERS.items():
        value = metadata.get(f"tokenizer.{key}")
        if value is not None:
            write(writer, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return file
