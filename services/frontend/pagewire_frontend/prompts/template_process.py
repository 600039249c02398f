"""The process that renders chat templates. Templates come with models and may take any time and
memory. The process may be killed at any time, and ends with its parent.

`template_link` starts it as `python -m pagewire_frontend.prompts.template_process`, with a socket
as its standard input. Messages are JSON behind their length. Questions are `{"op": "load", "model",
"source", "special_tokens"}` and `{"op": "render", "model", "messages", "add_generation_prompt",
"arguments", "continue_final_message", "tools"}`. The answer to each is `{"text"}`, or `{"error",
"field"}`.
"""

import json
import signal
import socket
import struct
from typing import Any, Final, NoReturn

import orjson

from pagewire_frontend.models.chat_template import ChatTemplate
from pagewire_frontend.process_limits import limit_address_space
from pagewire_shared.errors import InvalidRequestError

LENGTH: Final = struct.Struct("<I")
LIMIT_SECONDS: Final = 1.0
"""Seconds of processor time; waiting on a busy machine does not count."""
MEMORY_BYTES: Final = 512 * 1024**2
MAX_TEXT_CHARS: Final = 32 * 1024**2
_LATE_SECONDS: Final = 1.0
"""Time after the limit until the process ends, for work that the exception does not interrupt."""


class _TooLongError(BaseException):
    """The time is over. Not an Exception, because a template's functions may catch those."""


def main() -> None:
    """Answer questions until the socket closes."""
    # An interrupt from the keyboard goes to all processes of a terminal; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, _stop)
    limit_address_space(MEMORY_BYTES)
    templates: dict[str, ChatTemplate] = {}
    with socket.socket(fileno=0) as parent, parent.makefile("rb") as questions:
        while len(head := questions.read(LENGTH.size)) == LENGTH.size:
            answer = _answer(templates, questions.read(*LENGTH.unpack(head)))
            parent.sendall(LENGTH.pack(len(answer)) + answer)


def _answer(templates: dict[str, ChatTemplate], question: bytes) -> bytes:
    """Return the answer to a question, as JSON."""
    _limit_time(LIMIT_SECONDS)
    try:
        # Not orjson, which makes floats of integers of more than 64 bits.
        asked = json.loads(question)
        if asked["op"] == "load":
            templates[asked["model"]] = ChatTemplate(asked["source"], asked["special_tokens"])
            return orjson.dumps({"text": ""})
        return orjson.dumps({"text": _render(templates[asked["model"]], asked)})
    except InvalidRequestError as error:
        return _refusal(error.message, error.field)
    except _TooLongError:
        return _refusal(f"it takes more than {LIMIT_SECONDS:g} s")
    except RecursionError:
        return _refusal("it is nested too deeply")
    except orjson.JSONEncodeError:
        return _refusal("the text is not Unicode")
    except MemoryError:
        return _refusal("it takes too much memory")
    finally:
        _limit_time(0.0)


def _render(template: ChatTemplate, asked: dict[str, Any]) -> str:
    text = template.render(
        asked["messages"],
        add_generation_prompt=asked["add_generation_prompt"],
        arguments=asked["arguments"],
        continue_final_message=asked["continue_final_message"],
        tools=asked["tools"],
    )
    if len(text) > MAX_TEXT_CHARS:
        raise MemoryError
    return text


def _refusal(reason: str, field: str | None = None) -> bytes:
    if field is None:
        reason = f"the model's chat template cannot render these messages: {reason}"
    return orjson.dumps({"error": reason, "field": field or "messages"})


def _limit_time(seconds: float) -> None:
    """Raise _TooLongError in `seconds` of processor time; 0 for never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds and seconds + _LATE_SECONDS)


def _stop(*_: object) -> NoReturn:
    raise _TooLongError


if __name__ == "__main__":
    main()
