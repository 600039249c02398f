"""Questions with tools, and how a scripted scheduler answers them token by token."""

import json

from contract.frontend_peers import STOP

from pagewire_shared.kv.arrays import unpack_u32
from support.checkpoints.tool_models import ids_in, text_of

ARGUMENTS = {"city": "Zürich", "days": 2}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "How it will be.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "now"}},
]
STRICT = [{"type": "function", "function": {**tool["function"], "strict": True}} for tool in TOOLS]
ASKED = [{"role": "user", "content": "How is it?"}]
MARKERS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")


def answer(attach, submit, folder, text, *, reason=STOP, logprob=None, choice=0):
    """Answer with `text`, a message per token."""
    ids = ids_in(folder, text)
    for position, token in enumerate(ids):
        logprobs = [] if logprob is None else [logprob - position]
        attach.tokens(submit, position, [token], choice=choice, logprobs=logprobs)
    attach.finish(submit, len(ids), choice=choice, reason=reason)


def prompt_of(submit, folder):
    return text_of(folder, unpack_u32(submit.prompt_token_ids))


def bodies_of(reply, *, stream):
    """Return the bodies of a reply: one, or one per event."""
    if not stream:
        return [reply.json()]
    return [json.loads(line[6:]) for line in reply.text.split("\n\n")[:-2]]
