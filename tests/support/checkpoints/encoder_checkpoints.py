"""Small encoders and classifiers with random weights, written by transformers."""

import json
from pathlib import Path
from typing import Any

from support.checkpoints.checkpoints import write_tokenizer

VOCAB, HIDDEN, MAX_POSITIONS = 320, 32, 128
WORDS = (
    "the a of and to in is was for on that with as it at by from are be this have or an they which",
    "one you were all her she there would their we him been has when who will no more if out so up",
    "paris berlin france germany capital city river red green blue cat dog house tree water fire",
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP = range(4)

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.1,
    "pad_token_id": PAD,
}
_MODERN: dict[str, Any] = {
    **_SHAPE,
    "num_hidden_layers": 4,
    "max_position_embeddings": MAX_POSITIONS,
    "local_attention": 16,
    "bos_token_id": CLS,
    "eos_token_id": SEP,
    "cls_token_id": CLS,
    "sep_token_id": SEP,
}
_DECODER: dict[str, Any] = {
    **_SHAPE,
    "max_position_embeddings": MAX_POSITIONS,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "bos_token_id": None,
    "eos_token_id": SEP,
}


def shape_of(architecture: str) -> dict[str, Any]:
    """Return the fields of config.json for an architecture."""
    if architecture.startswith("ModernBert"):
        return _MODERN
    if architecture.startswith(("Llama", "Mistral", "Qwen")):
        return _DECODER
    is_roberta = "Roberta" in architecture
    return {
        **_SHAPE,
        "max_position_embeddings": MAX_POSITIONS + (PAD + 1 if is_roberta else 0),
        "type_vocab_size": 1 if is_roberta else 2,
    }


def make_encoder(
    folder: Path, architecture: str = "BertModel", *, num_labels: int | None = None, **config: Any
) -> Path:
    """Write a checkpoint of `architecture` into `folder`, with a tokenizer, and return the folder.

    Args:
        folder: Made if it is missing.
        architecture: The name of a class of transformers.
        num_labels: Of a classifier.
        config: Further fields of config.json.
    """
    import torch
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    cls = getattr(transformers, architecture)
    fields = {**shape_of(architecture), **config}
    if num_labels is not None:
        fields["id2label"] = {index: f"label {index}" for index in range(num_labels)}
        fields["label2id"] = {name: index for index, name in fields["id2label"].items()}
    model = cls(cls.config_class(**fields))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator) * 0.1
            is_gain = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(noise + 1.0 if is_gain else noise)
    model.save_pretrained(folder)
    if architecture.startswith(("Llama", "Mistral", "Qwen")):
        write_tokenizer(folder, VOCAB, MAX_POSITIONS)
    else:
        write_pair_tokenizer(folder, has_types=architecture.startswith("Bert"))
    return folder


def write_pair_tokenizer(folder: Path, *, has_types: bool) -> None:
    """Write a WordPiece tokenizer that puts one text, or two, between BERT's special tokens."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    signs = [*"0123456789.,?!'-"]
    vocabulary = [
        *SPECIAL,
        *" ".join(WORDS).split(),
        *letters,
        *signs,
        *(f"##{one}" for one in letters),
    ]
    ids = {token: index for index, token in enumerate(dict.fromkeys(vocabulary))}
    tokenizer = Tokenizer(models.WordPiece(vocab=ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    second = 1 if has_types else 0
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair=f"[CLS]:0 $A:0 [SEP]:0 $B:{second} [SEP]:{second}",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
        "model_max_length": MAX_POSITIONS,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_sentence_files(
    folder: Path, *, pooling: str = "mean", is_normalized: bool = True
) -> None:
    """Write the files in which sentence-transformers keeps pooling and normalization.

    Args:
        folder: That of the checkpoint.
        pooling: "mean", "cls" or "lasttoken".
        is_normalized: Whether vectors are scaled to length 1.
    """
    kinds = ["Transformer", "Pooling", *(["Normalize"] if is_normalized else [])]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    keys = {"mean": "mean_tokens", "cls": "cls_token", "lasttoken": "lasttoken"}
    settings = {f"pooling_mode_{key}": name == pooling for name, key in keys.items()}
    settings["word_embedding_dimension"] = HIDDEN
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
