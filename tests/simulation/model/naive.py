"""What every request must produce, computed the slow way: without scheduler, blocks or batch.

A position's cell stands for its keys and values: it depends on the token and on everything before
it. A token depends on all cells it attends to, on seed, choice and position, and on nothing else.
"""

import math
import struct
from collections.abc import Sequence

Cell = int
Windows = tuple[int | None, ...]
"""Positions that a query reads in each cache group; None for all."""
Score = tuple[float, int]
EMBEDDING_SIZE = 2
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEF"
"""The text of each token."""
VOCAB_SIZE = len(LETTERS)
EOS = 31
BAD_GRAMMAR = "bad"
"""A grammar that begins so does not compile."""

_MASK = (1 << 61) - 2


STARTED_WEIGHTS = b"m" * 32
"""The fingerprint of the model that workers are started with."""


def salt_of_weights(fingerprint: bytes) -> bytes:
    """What other weights add to the root of every cell."""
    return b"" if fingerprint == STARTED_WEIGHTS else fingerprint


def root_cell(salt: bytes) -> Cell:
    """The cell before the first. Real keys do not depend on the salt; these do, so that a block
    shared between tenants is a wrong token."""
    value = 7
    for byte in salt:
        value = hash((value, byte))
    return value


def next_cell(previous: Cell, token: int, position: int) -> Cell:
    return hash((previous, token, position))


def cells_of(root: Cell, tokens: Sequence[int]) -> list[Cell]:
    """One cell per token."""
    cells = []
    for position, token in enumerate(tokens):
        root = next_cell(root, token, position)
        cells.append(root)
    return cells


def cell_in(group: int, cell: Cell) -> Cell:
    """What the blocks of a cache group hold for `cell`: other layers of the same tokens."""
    return hash((cell, group)) if group else cell


def context_of(cells: Sequence[Cell], windows: Windows) -> int:
    """What a query behind `cells` reads in each group: all of them, or the last ones."""
    seen = [cells if window is None else cells[-window:] for window in windows]
    return joined([[cell_in(group, one) for one in part] for group, part in enumerate(seen)])


def joined(groups: Sequence[Sequence[Cell]]) -> int:
    """The context of the cells that are read in each group."""
    contexts = [hash(tuple(cells)) for cells in groups]
    return contexts[0] if len(contexts) == 1 else hash(tuple(contexts))


def allowed_by(grammar: str, emitted: Sequence[int]) -> list[int]:
    """The tokens that may follow `emitted`: about half, never none, and all that came before it
    matters."""
    allowed = [
        token
        for token in range(VOCAB_SIZE)
        if (hash((len(grammar), grammar[-1:] == "1", *emitted, token)) & _MASK) >> 9 & 1
    ]
    return allowed or [EOS]


def sample(
    context: int, *, seed: int, choice: int, position: int, allowed: Sequence[int] | None = None
) -> int:
    """The token at `position` of the output of `choice`."""
    word = hash((context, seed, choice, position)) & _MASK
    tokens = range(VOCAB_SIZE) if allowed is None else allowed
    return tokens[(word >> 7) % len(tokens)]


def logprobs(context: int) -> list[float]:
    """Natural log-probability of every token, rounded as on the wire."""
    logits = [((hash((context, token)) & _MASK) >> 9) % 4096 / 700.0 for token in range(VOCAB_SIZE)]
    total = math.log(sum(map(math.exp, logits)))
    values = [logit - total for logit in logits]
    return list(struct.unpack(f"{VOCAB_SIZE}f", struct.pack(f"{VOCAB_SIZE}f", *values)))


def most_likely(context: int, num: int) -> list[tuple[int, float]]:
    """The `num` most likely tokens and their log-probabilities, the most likely first."""
    values = logprobs(context)
    order = sorted(range(VOCAB_SIZE), key=lambda token: (-values[token], token))
    return [(token, values[token]) for token in order[:num]]


def scores(cells: Sequence[Cell], tokens: Sequence[int], windows: Windows) -> list[Score]:
    """What the model thought of tokens 1 and on when it had read those before them."""
    return [
        score(context_of(cells[:position], windows), tokens[position])
        for position in range(1, len(tokens))
    ]


def score(context: int, token: int) -> Score:
    """Log-probability of a token, and its rank among all."""
    values = logprobs(context)
    return values[token], sum(value >= values[token] for value in values)


def vector(contexts: Sequence[int]) -> bytes:
    """What a sequence becomes, of the contexts that count."""
    word = hash(tuple(contexts)) & _MASK
    return struct.pack("<2I", word & 0xFFFFFFFF, word >> 32)


def embed(prompt: Sequence[int], *, salt: bytes, windows: Windows, is_mean: bool) -> bytes:
    """The vector of a prompt."""
    cells = cells_of(root_cell(salt), prompt)
    first = 1 if is_mean else len(cells)
    return vector([context_of(cells[:end], windows) for end in range(first, len(cells) + 1)])


def generate(
    prompt: Sequence[int],
    *,
    salt: bytes,
    seed: int,
    choice: int,
    max_tokens: int,
    min_tokens: int,
    stop_ids: frozenset[int],
    windows: Windows,
    grammar: str | None = None,
) -> tuple[list[int], bool]:
    """Tokens of one choice, and whether a stop token ended it."""
    cells = cells_of(root_cell(salt), prompt)
    tokens: list[int] = []
    while len(tokens) < max_tokens:
        context = context_of(cells, windows)
        allowed = allowed_by(grammar, tokens) if grammar is not None else None
        token = sample(context, seed=seed, choice=choice, position=len(tokens), allowed=allowed)
        tokens.append(token)
        cells.append(next_cell(cells[-1], token, len(cells)))
        if token in stop_ids and len(tokens) > min_tokens:
            return tokens, True
    return tokens, False
