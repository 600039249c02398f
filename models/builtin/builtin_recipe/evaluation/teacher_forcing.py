"""What a network can do while it trains: exact answers by teacher forcing; it generates nothing.

A greedy answer is exactly right if and only if every argmax is right given the right prefix, so one
forward pass over a finished chat judges all its answers.
"""

from typing import Final

import torch
from tokenizers import Tokenizer

from builtin_recipe.evaluation.exam import CELLS, draw_examples
from builtin_recipe.evaluation.questions import Cell
from builtin_recipe.model.chat_tokenizer import encode_conversation
from builtin_recipe.model.network import IGNORED_LABEL, Decoder

# A long prompt costs as much as ten short ones.
_LONG_SHARE: Final = 0.125


@torch.no_grad()
def score_chat(network: Decoder, ids: list[int], labels: list[int]) -> list[bool]:
    """Return for each answer of an encoded chat whether greedy decoding gives exactly it."""
    device = network.embed_tokens.weight.device
    predicted = network(torch.tensor(ids, device=device)[None])[0, :-1].argmax(-1).tolist()
    verdicts: list[bool] = []
    previous = IGNORED_LABEL
    for guess, wanted in zip(predicted, labels[1:], strict=True):
        if wanted != IGNORED_LABEL:
            if previous == IGNORED_LABEL:
                verdicts.append(True)
            verdicts[-1] = verdicts[-1] and guess == wanted
        previous = wanted
    return verdicts


def examine(network: Decoder, tokenizer: Tokenizer, num_per_cell: int) -> str:
    """Return one line with the exact shares of the main cells, trained / held-out wordings.

    Every cell asks `num_per_cell` questions per side, those with long prompts an eighth. The draws
    have seeds of their own, and the network is left in the mode it came in.
    """
    was_training = network.training
    network.eval()
    try:
        # Blocks compiled for the lengths of training would be compiled again for every chat.
        with torch.compiler.set_stance("force_eager"):
            parts = [
                f"{cell.name} {_share(network, tokenizer, cell, False, num_per_cell):.2f}"
                f"/{_share(network, tokenizer, cell, True, num_per_cell):.2f}"
                for cell in CELLS
                if cell.is_main
            ]
    finally:
        network.train(was_training)
    return ", ".join(parts)


def _share(
    network: Decoder, tokenizer: Tokenizer, cell: Cell, is_held_out: bool, num_per_cell: int
) -> float:
    """Judge the last answers of a cell; a chat beyond the context counts as wrong."""
    num_chats = max(1, int(num_per_cell * _LONG_SHARE)) if cell.is_long else num_per_cell
    num_right = 0
    for example in draw_examples(cell, is_held_out, num_chats):
        ids, labels = encode_conversation(tokenizer, example.conversation)
        if len(ids) <= network.shape.max_positions:
            num_right += score_chat(network, ids, labels)[-1]
    return num_right / num_chats
