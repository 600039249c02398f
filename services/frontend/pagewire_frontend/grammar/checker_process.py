"""The grammar checker process: compiles client grammars for a frontend. It may be killed at any
time; it ends with its parent, and by itself when it needs too much memory.

`grammar.process` starts it as `python -m pagewire_frontend.grammar.checker_process BYTES`.
"""

import os
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO

from llguidance import LLTokenizer

from pagewire_frontend.grammar.frames import LENGTH, pack, unpack
from pagewire_frontend.process_limits import limit_address_space
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.grammar_source import check, load_grammar_tokenizer
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams


def main() -> None:
    """Answer questions from standard input until it closes."""
    # An interrupt from the keyboard goes to all processes of a terminal; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_address_space(int(sys.argv[1]))
    questions: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(sys.stdin.buffer, questions), daemon=True)
    reader.start()
    tokenizers: dict[str, LLTokenizer] = {}
    while True:
        answer = {"error": _error(tokenizers, questions.get())}
        sys.stdout.buffer.write(pack(answer))
        sys.stdout.buffer.flush()


def params_of(question: dict[str, Any]) -> StructuredOutputsParams:
    """Return the structured outputs that a question asks about. Raises InvalidRequestError."""
    kind, text = question["kind"], question["text"]
    if kind == "json_object":
        return StructuredOutputsParams(json_object=True)
    if kind == "choice":
        return StructuredOutputsParams(choice=tuple(question["choice"]))
    return StructuredOutputsParams(**{"json" if kind == "json_schema" else kind: text})


def _read(stream: BinaryIO, questions: "queue.SimpleQueue[dict[str, Any]]") -> None:
    """Pass questions on. When the stream ends the parent has ended: exit, even during a compile."""
    while len(head := stream.read(LENGTH.size)) == LENGTH.size:
        questions.put(unpack(stream.read(*LENGTH.unpack(head))))
    os._exit(0)


def _error(tokenizers: dict[str, LLTokenizer], question: dict[str, Any]) -> str | None:
    """Return the error in one line, or None."""
    model = question["model"]
    try:
        if question["op"] == "load":
            tokenizers[model] = load_grammar_tokenizer(
                question["tokenizer"], question["vocab_size"], question["eos_token_ids"]
            )
        else:
            check(tokenizers[model], params_of(question))
    except InvalidRequestError as error:
        return error.message
    return None


if __name__ == "__main__":
    main()
