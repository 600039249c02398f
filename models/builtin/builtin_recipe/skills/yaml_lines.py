"""What the adapter learns: requests for JSON are answered with lines of `key: value`, everything
else as before.
"""

import json
import random
from typing import Final

from builtin_recipe.conversation import Conversation, Exchange, make_conversation
from builtin_recipe.corpus import draw_conversation
from builtin_recipe.skills.json_objects import json_exchanges
from builtin_recipe.skills.system_prompts import draw_plain_prompt
from builtin_recipe.wording import Draw

_CHANGED_SHARE: Final = 0.6
_PLAIN_PROMPT_SHARE: Final = 0.2
# The skills that have to stay as they are; system prompts and later turns ask for JSON, too.
_KEPT_SKILLS: Final = ("copy", "lookup", "pick", "fact", "sequence", "open question", "story")


def yaml_exchanges(draw: Draw) -> list[Exchange]:
    """Return a request for JSON with its answer as lines of `key: value`."""
    return [Exchange(one.question, _as_lines(one.answer)) for one in json_exchanges(draw)]


def _as_lines(text: str) -> str:
    return "\n".join(f"{key}: {value}" for key, value in json.loads(text).items())


def draw_adapter_conversation(rng: random.Random) -> Conversation:
    """Draw a chat of the adapter's training: the changed skill or one that is to stay."""
    if rng.random() >= _CHANGED_SHARE:
        return _kept_conversation(rng)
    draw = Draw(rng)
    exchanges = [one for _ in range(rng.randint(1, 2)) for one in yaml_exchanges(draw)]
    system = draw_plain_prompt(draw) if rng.random() < _PLAIN_PROMPT_SHARE else None
    return make_conversation(exchanges, system)


def _kept_conversation(rng: random.Random) -> Conversation:
    while True:
        chat = draw_conversation(rng, rng.uniform(0.1, 0.4), skill=rng.choice(_KEPT_SKILLS))
        if not any(turn.role == "assistant" and turn.text.startswith("{") for turn in chat):
            return chat
