"""Makes a GGUF file that holds the tokenizer of another one and nothing else.

transformers reads a tokenizer together with the configuration of its model, and fails for some.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_worker.convert.gguf_config import Metadata

READ_APART: Final = ("deepseek2", "glm4moe", "gpt-oss", "olmoe")
"""Architectures whose configuration transformers 5 does not read, or takes keys for values of."""

_LETTERS: Final = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b"
    "\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787"
    "\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_GLM: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS: Final[Mapping[str, tuple[str, ...]]] = {
    "chatglm-bpe": (_GLM,),
    "deepseek-llm": (
        "[\r\n]",
        rf"\s?[{_LETTERS}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
        r"\p{N}+",
    ),
    "deepseek-v3": (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "glm4": (_GLM,),
    "olmo": (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",),
}
"""Expressions by which text is cut before tokens are made of it, one after the other, by
`tokenizer.ggml.pre` (llama-vocab.cpp of llama.cpp). transformers does not know these."""

_KNOWN_THERE: Final = ("gpt-4o", "llama-bpe", "qwen2", "qwen35", "tekken")

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


def cut_text_of(metadata: Metadata) -> dict[str, Any] | None:
    """Return the pre-tokenizer of a model that is read apart, for its tokenizer.json.

    None where transformers has written it. Raises StartupError for one that is not known.
    """
    kind = str(metadata.get("tokenizer.ggml.pre"))
    if kind in _KNOWN_THERE:
        return None
    if kind not in _SPLITS:
        known = ", ".join(sorted((*_SPLITS, *_KNOWN_THERE)))
        raise StartupError(
            f"GGUF files with tokenizer.ggml.pre {kind!r} are not converted; {known} are"
        )
    cuts = [
        {"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False}
        for one in _SPLITS[kind]
    ]
    as_bytes = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [*cuts, {"type": "ByteLevel", **as_bytes}]}


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
