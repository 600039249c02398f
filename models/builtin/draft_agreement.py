"""Measure how often the draft's next token is that of the built-in model: what greedy speculative
decoding would accept.
"""

import argparse
import random
from pathlib import Path
from typing import Final

import torch
from builtin_recipe.conversation import make_conversation
from builtin_recipe.corpus import SKILLS
from builtin_recipe.model.chat_tokenizer import encode_conversation
from builtin_recipe.model.exporting import load_export
from builtin_recipe.model.network import IGNORED_LABEL, Decoder
from builtin_recipe.wording import Draw
from tokenizers import Tokenizer

PACKAGE: Final = Path(__file__).parent.parent.parent / "pagewire"


@torch.no_grad()
def agreement(
    target: Decoder, draft: Decoder, tokenizer: Tokenizer, skill: str, num_chats: int
) -> float:
    """Return the share of answer tokens of unseen chats where both networks choose the same."""
    draw = Draw(random.Random(f"agreement {skill}"), 0.3)
    num_equal = num_tokens = 0
    for _ in range(num_chats):
        ids, labels = encode_conversation(tokenizer, make_conversation(SKILLS[skill](draw)))
        chosen = [
            network(torch.tensor(ids)[None])[0, :-1].argmax(-1) for network in (target, draft)
        ]
        is_answer = torch.tensor(labels[1:]).ne(IGNORED_LABEL)
        num_equal += int((chosen[0] == chosen[1])[is_answer].sum())
        num_tokens += int(is_answer.sum())
    return num_equal / num_tokens


def main() -> None:
    """Read the command line and print a row per skill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=PACKAGE / "builtin_model")
    parser.add_argument("--draft", type=Path, default=PACKAGE / "builtin_draft")
    parser.add_argument("--chats", type=int, default=60, help="chats per skill")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    target, tokenizer = load_export(arguments.target)
    draft, draft_tokenizer = load_export(arguments.draft)
    if draft_tokenizer.get_vocab() != tokenizer.get_vocab():
        raise SystemExit("the draft and the model have different tokenizers")
    print("| skill | same next token |\n| --- | --- |")
    for skill in SKILLS:
        share = agreement(target, draft, tokenizer, skill, arguments.chats)
        print(f"| {skill} | {share:.2f} |", flush=True)


if __name__ == "__main__":
    main()
