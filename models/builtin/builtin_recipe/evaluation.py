"""What the exported weights can do: exact answers by teacher forcing, and greedy generation.

A greedy answer is exactly right if and only if every argmax is right given the right prefix, so one
forward pass over a finished chat judges all its answers.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from tokenizers import Tokenizer
from torch import Tensor

from builtin_recipe.chat_tokenizer import encode_conversation
from builtin_recipe.conversation import (
    TURN_END,
    TURN_START,
    Conversation,
    make_conversation,
)
from builtin_recipe.corpus import (
    SKILLS,
    ruled_conversation,
)
from builtin_recipe.items import ItemKind
from builtin_recipe.list_skills import copy_exchanges, pick_exchanges
from builtin_recipe.network import IGNORED_LABEL, Decoder
from builtin_recipe.number_skills import draw_sum
from builtin_recipe.table_skills import draw_table, table_exchanges

_SEED: Final = 4242
_MAX_NEW_TOKENS: Final = 220


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table: unseen chats of one skill."""

    name: str
    draw: Callable[[random.Random], Conversation]
    num_chats: int


@dataclass(frozen=True, slots=True)
class Score:
    """Exactly right answers out of all answers of a cell."""

    name: str
    num_right: int
    num_answers: int


def _skill_chat(skill: str, size: float, rng: random.Random) -> Conversation:
    return make_conversation(SKILLS[skill](rng, size))


def _copy_chat(kind: ItemKind, size: float, rng: random.Random) -> Conversation:
    return make_conversation(copy_exchanges(rng, size, kind))


def _pick_chat(kind: ItemKind, rng: random.Random) -> Conversation:
    return make_conversation(pick_exchanges(rng, 1.0, kind))


def _lookup_chat(
    kind: ItemKind, num_lines: int, lines_share: float, rng: random.Random
) -> Conversation:
    table = draw_table(rng, num_lines, kind)
    return make_conversation(table_exchanges(rng, table, 5, lines_share))


def _sum_chat(rng: random.Random) -> Conversation:
    return make_conversation([draw_sum(rng, held_out=True)])


def cells() -> list[Cell]:
    """Return all cells of the table."""
    found = [
        Cell(f"copy, up to {limit} {kind.value}", partial(_copy_chat, kind, size), 60)
        for kind, limit, size in (
            (ItemKind.WORD, 15, 0.35),
            (ItemKind.WORD, 40, 1.0),
            (ItemKind.NAME, 12, 0.35),
            (ItemKind.INVENTED, 7, 0.35),
            (ItemKind.CODE, 7, 0.35),
            (ItemKind.NUMBER, 7, 0.35),
        )
    ]
    found.append(Cell("reverse, up to 6 items", partial(_skill_chat, "reverse", 1.0), 60))
    for kind in (ItemKind.WORD, ItemKind.NAME):
        name = f"pick first, second, last of {kind.value}"
        found.append(Cell(name, partial(_pick_chat, kind), 60))
    for num_lines, num_chats in ((4, 24), (10, 20), (30, 12), (80, 8), (150, 6)):
        name = f"look up, {num_lines} lines, keys are words"
        draw = partial(_lookup_chat, ItemKind.WORD, num_lines, 0.0)
        found.append(Cell(name, draw, num_chats))
    for kind in (ItemKind.NAME, ItemKind.CODE, ItemKind.INVENTED):
        name = f"look up, 20 lines, keys are {kind.value}"
        found.append(Cell(name, partial(_lookup_chat, kind, 20, 0.0), 16))
    draw = partial(_lookup_chat, ItemKind.WORD, 20, 1.0)
    found.append(Cell("copy 1 to 6 of 20 lines", draw, 16))
    found.append(Cell("sums below 20 and 20, held out", _sum_chat, 100))
    for skill, size in (
        ("sequence", 0.6),
        ("json", 0.5),
        ("fact", 0.5),
        ("count", 1.0),
        ("small talk", 0.5),
        ("open question", 0.5),
    ):
        found.append(Cell(skill, partial(_skill_chat, skill, size), 60))
    found.append(Cell("system prompt", lambda rng: ruled_conversation(rng, 0.3), 60))
    return found


@torch.no_grad()
def score_chat(network: Decoder, ids: list[int], labels: list[int]) -> list[bool]:
    """Return for each answer of an encoded chat whether greedy decoding gives exactly it."""
    predicted = network(torch.tensor(ids)[None])[0, :-1].argmax(-1).tolist()
    verdicts: list[bool] = []
    previous = IGNORED_LABEL
    for guess, wanted in zip(predicted, labels[1:], strict=True):
        if wanted != IGNORED_LABEL:
            if previous == IGNORED_LABEL:
                verdicts.append(True)
            verdicts[-1] = verdicts[-1] and guess == wanted
        previous = wanted
    return verdicts


def score_cell(network: Decoder, tokenizer: Tokenizer, cell: Cell) -> Score:
    """Judge all chats of a cell that fit the context."""
    rng = random.Random(f"{_SEED} {cell.name}")
    verdicts: list[bool] = []
    for _ in range(cell.num_chats):
        ids, labels = encode_conversation(tokenizer, cell.draw(rng))
        if len(ids) <= network.shape.max_positions:
            verdicts += score_chat(network, ids, labels)
    return Score(cell.name, sum(verdicts), len(verdicts))


def prompt_ids(tokenizer: Tokenizer, question: str) -> list[int]:
    """Return the ids of one question with the start of the answer."""
    text = f"{TURN_START}user\n{question}{TURN_END}\n{TURN_START}assistant\n"
    ids: list[int] = tokenizer.encode(text).ids
    return ids


@torch.no_grad()
def greedy_answers(
    network: Decoder, tokenizer: Tokenizer, questions: list[str], max_tokens: int = _MAX_NEW_TOKENS
) -> list[tuple[str, bool]]:
    """Return for each question the greedy answer and whether it stopped by itself.

    All questions run as one batch without a cache; rows are padded on the right, which causal
    attention never reads.
    """
    prompts = [prompt_ids(tokenizer, question) for question in questions]
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    ids = torch.zeros(len(prompts), int(lengths.max()) + max_tokens, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    end, rows = tokenizer.token_to_id(TURN_END), torch.arange(len(prompts))
    stopped = torch.zeros(len(prompts), dtype=torch.bool)
    starts: Tensor = lengths.clone()
    for _ in range(max_tokens):
        states = network.hidden(ids[:, : int(lengths.max())])[rows, lengths - 1]
        chosen = (states @ network.embed_tokens.weight.T).argmax(-1)
        stopped |= chosen == end
        if bool(stopped.all()):
            break
        ids[rows[~stopped], lengths[~stopped]] = chosen[~stopped]
        lengths[~stopped] += 1
    return [
        (tokenizer.decode(ids[row, starts[row] : lengths[row]].tolist()), bool(stopped[row]))
        for row in range(len(prompts))
    ]


def accuracy_rows(scores: list[Score]) -> list[str]:
    """Return one row of a Markdown table per score."""
    return [
        f"| {one.name} | {one.num_right / max(1, one.num_answers):.2f} | {one.num_answers} |"
        for one in scores
    ]
