"""The text side of models that call tools and think: tokens of their own, and chat templates."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from support.checkpoints.text_models import make_text_model

SPECIAL = ("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")
"""Added as special tokens, other markers as plain ones, as in the files of real models."""

TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content %}({{ message.reasoning_content }}){% endif %}"
    "{{ message.content }}"
    "{% for call in message.tool_calls or [] %}MARKER{{ call.function | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\nOPENING{% endif %}"
)
TOGGLED = "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
"""An opening that begins a thought unless told not to."""


def make_tool_model(
    folder: Path, *, marker: str = "", opening: str = "", tokens: Sequence[str] = ()
) -> Path:
    """Write a model into `folder`.

    Args:
        folder: Where to.
        marker: What its template writes before a call.
        opening: What it writes at the beginning of an answer.
        tokens: Texts that are one token each.
    """
    make_text_model(folder, context=2048)
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    for token in tokens:
        tokenizer.add_tokens([AddedToken(token, special=token in SPECIAL, normalized=False)])
    tokenizer.save(str(path))
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] = tokenizer.get_vocab_size()
    (folder / "config.json").write_text(json.dumps(config))
    template = TEMPLATE.replace("MARKER", marker).replace("OPENING", opening)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def ids_in(folder: Path, text: str) -> list[int]:
    """Return the ids of a text, markers as tokens."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def text_of(folder: Path, ids: Sequence[int]) -> str:
    """Return the text of ids, with everything special."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text: str = tokenizer.decode(list(ids), skip_special_tokens=False)
    return text
