"""A model as a frontend needs it: tokenizer, template and configuration, no weights and no
torch."""

import json
from pathlib import Path

from support.checkpoints.checkpoints import EOS_TOKEN_ID, write_tokenizer


def make_text_model(folder: Path, *, vocab: int = 259, context: int = 512) -> Path:
    """Write the text side of a tiny checkpoint into `folder`; 259 ids make every byte a token."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, vocab, context)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": context,
        "vocab_size": vocab,
        "eos_token_id": EOS_TOKEN_ID,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder
