"""Writes docs/vllm.md and docs/start/coming-from.md from the table.

`python -m pagewire.vllm_names.page FOLDER` writes both files into FOLDER.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from pagewire.vllm_names.other_programs import LLAMA_CPP, OLLAMA, VLLM_COMMANDS
from pagewire.vllm_names.table import SHORT_FLAGS, SUBJECTS
from pagewire_shared.names.foreign_name import ANY, ForeignName, NameState
from pagewire_shared.names.sampling_names import SAMPLING, STRUCTURED
from pagewire_shared.process.settings import flag_of

_FLAG: Final = re.compile(r"(?<![\w`-])--[a-z][a-z0-9-]+")

_HEAD: Final = """\
# vLLM's names

This page is written by `python -m pagewire.vllm_names.page docs` from the table behind the flags.

Every flag of `vllm serve` and every keyword of `LLM`, `EngineArgs` and `SamplingParams` has one
of three states, for vLLM 0.6 to 0.13. Keywords of `LLM` are the flags with `_` for `-`.

| state | meaning |
| --- | --- |
| works | under its own name, or as the flag here that the row names |
| no effect | it is accepted, and one line of the log says why it changes nothing |
| refused | the start ends with the line of the row; values in brackets change nothing |

| vLLM | here |
| --- | --- |
"""

_OTHERS_HEAD: Final = """\
# Coming from Ollama or llama.cpp

This page is written by `python -m pagewire.vllm_names.page docs`. A flag of llama.cpp ends with
the text of its row. [vllm.md](../vllm.md) is the same for vLLM.

What differs most:

- A model is a folder, a hub id with safetensors, or a GGUF file; see [models.md](../models.md).
- A server has the models that it was started with. It neither loads nor unloads them on request.
- The API is OpenAI's, at port 8000; see [api.md](../api.md).

## Ollama

| Ollama | here |
| --- | --- |
"""


def vllm_page() -> str:
    """Return the text of docs/vllm.md."""
    shorts: dict[str, list[str]] = {}
    for flag, name in SHORT_FLAGS.items():
        shorts.setdefault(name, []).append(flag)

    def flags(row: ForeignName) -> str:
        return " ".join(f"`{flag}`" for flag in (flag_of(row.name), *shorts.get(row.name, ())))

    parts = [_HEAD, *(f"| `{theirs}` | {ours} |\n" for theirs, ours in VLLM_COMMANDS)]
    for title, rows in SUBJECTS:
        parts += [f"\n## {title}\n\n", *_table("flag", [(flags(row), row) for row in rows])]
    parts.append("\n## SamplingParams\n\n")
    parts += _table("field", [(f"`{row.name}`", row) for row in SAMPLING])
    parts.append("\n## GuidedDecodingParams and StructuredOutputsParams\n\n")
    parts += _table("field", [(f"`{row.name}`", row) for row in STRUCTURED])
    return "".join(parts)


def coming_from_page() -> str:
    """Return the text of docs/start/coming-from.md."""
    parts = [_OTHERS_HEAD, *(f"| {theirs} | {ours} |\n" for theirs, ours in OLLAMA)]
    parts.append("\n## llama.cpp\n\n| llama.cpp | here |\n| --- | --- |\n")
    for flags, hint in LLAMA_CPP:
        shown = " ".join(f"`{flag}`" for flag in flags.split())
        parts.append(f"| {shown} | {_marked(hint)} |\n")
    return "".join(parts)


def _table(head: str, rows: Sequence[tuple[str, ForeignName]]) -> Iterator[str]:
    """Yield the lines of a table; neighbours with one state and text share a line."""
    yield f"| {head} | state | here |\n| --- | --- | --- |\n"
    for (state, text), group in groupby(rows, lambda item: (_state(item[1]), _text(item[1]))):
        names = ", ".join(name + _neutral(row) for name, row in group)
        yield f"| {names} | {state} | {text} |\n"


def _state(row: ForeignName) -> str:
    return row.state.value


def _text(row: ForeignName) -> str:
    parts = []
    if row.here not in ("", row.name):
        parts.append(f"`{flag_of(row.here)}`" if row.name != "guided_decoding" else row.here)
    parts += [f"`{theirs}` is `{ours}`" for theirs, ours in row.meanings.items() if theirs != ours]
    text = "; ".join([*parts, *([row.text] if row.text else [])])
    return _marked(text)


def _marked(text: str) -> str:
    """Return `text` with its flags as code."""
    return _FLAG.sub(r"`\g<0>`", text)


def _neutral(row: ForeignName) -> str:
    if row.state is not NameState.REFUSED or row.neutral in (ANY, ()):
        return ""
    return f" ({', '.join(row.neutral)})"


def main(arguments: Sequence[str]) -> None:
    """Write both pages into the folder named."""
    folder = Path(arguments[0])
    (folder / "vllm.md").write_text(vllm_page())
    (folder / "start" / "coming-from.md").write_text(coming_from_page())


if __name__ == "__main__":
    main(sys.argv[1:])
