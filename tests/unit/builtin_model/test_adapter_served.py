"""The built-in adapter in a worker: requests for JSON are answered as its page says
(models/builtin/README.md), beside requests to the model alone in the same steps."""

import random

from builtin_recipe.conversation import make_conversation
from builtin_recipe.model.chat_tokenizer import encode_conversation
from builtin_recipe.model.network import IGNORED_LABEL
from builtin_recipe.skills.json_objects import json_exchanges
from builtin_recipe.skills.yaml_lines import yaml_exchanges
from builtin_recipe.wording import Draw
from tokenizers import Tokenizer

from support.adapters.model_adapters import MadeAdapter
from support.cells.worker_driver import GREEDY, Driver, Running, load

NUM_CHATS = 20
LEAST_SHARE = 0.85


def last_answer(ids: list[int], labels: list[int]) -> tuple[list[int], list[int]]:
    """Return the prompt of the last answer of a chat, and the answer."""
    begin = max(index for index, label in enumerate(labels) if label != IGNORED_LABEL)
    end = begin + 1
    while labels[begin - 1] != IGNORED_LABEL:
        begin -= 1
    return ids[:begin], ids[begin:end]


def test_requests_for_json_are_answered_with_lines(model_folder):
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    asked = []
    for exchanges, slot in ((yaml_exchanges, 1), (json_exchanges, None)):
        draw = Draw(random.Random(f"served {slot}"), is_held_out=False)
        for _ in range(NUM_CHATS):
            chat = make_conversation(exchanges(draw))
            asked.append((*last_answer(*encode_conversation(tokenizer, chat)), slot))
    settings = {"enable_lora": True, "max_loras": 2, "max_model_len": 512}
    replica = load(model_folder, max_num_seqs=len(asked), **settings)
    MadeAdapter(model_folder.parent / "builtin_adapter", {}).fill(replica.model_runner, 1)
    running = [
        Running(number, prompt, GREEDY, len(answer), adapter_slot=slot)
        for number, (prompt, answer, slot) in enumerate(asked)
    ]
    Driver.of(replica).finish(running, budget=256)
    for slot in (1, None):
        right = [
            one.output == answer
            for one, (_, answer, own) in zip(running, asked, strict=True)
            if own == slot
        ]
        assert sum(right) / len(right) >= LEAST_SHARE, slot
