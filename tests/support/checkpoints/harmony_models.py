"""The text side of a model that answers in harmony: its tokens, and a chat template like that of
gpt-oss."""

import json
import shutil
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

TOKENS = (
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
)
TEMPLATE = Path(__file__).with_name("harmony.jinja")


def add_harmony(folder: Path) -> Path:
    """Give a checkpoint, whose vocabulary has room for them, the tokens and the template."""
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in TOKENS])
    tokenizer.save(str(path))
    shutil.copy(TEMPLATE, folder / "chat_template.jinja")
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] = max(config["vocab_size"], tokenizer.get_vocab_size())
    (folder / "config.json").write_text(json.dumps(config))
    return folder
