"""The byte-level BPE tokenizer: its training on generated chats and the encoding of conversations
with labels.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from builtin_recipe.conversation import (
    END_OF_TEXT,
    TURN_END,
    TURN_START,
    Conversation,
)
from builtin_recipe.corpus import corpus_vocabulary, draw_conversation
from builtin_recipe.model.network import IGNORED_LABEL
from builtin_recipe.words import CITIES, COLORS, COMMON_WORDS, DAYS, JOBS, MONTHS, NAMES, NOUNS

PAD: Final = "<|pad|>"
# The last four are reserved, so that tools and reasoning need no new vocabulary.
SPECIAL_TOKENS: Final = (
    END_OF_TEXT,
    TURN_START,
    TURN_END,
    PAD,
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
)
VOCAB_SIZE: Final = 3072
NUM_TRAINING_CHATS: Final = 30_000
_SEED: Final = 7
# Enough that every word of the lists becomes one token in both forms: a key that is split at the
# start of a line and whole inside a question never matches, and lookups are not learnt.
_NUM_WORD_COPIES: Final = 400
# Words of sentences and stories stand behind a space, and most of them are frequent anyway.
_NUM_COMMON_COPIES: Final = 150
# Words with the space before them, single digits, runs of punctuation, white space.
_SPLIT: Final = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _training_texts(num_chats: int) -> Iterator[str]:
    rng = random.Random(_SEED)
    for _ in range(num_chats):
        conversation = draw_conversation(rng, 0.4)
        yield "".join(f"{turn.role}\n{turn.text}\n" for turn in conversation)
    # Every word of the lists gets a token at the start of a line and one behind a space.
    for word in dict.fromkeys((*NOUNS, *NAMES, *CITIES, *COLORS, *JOBS, *DAYS, *MONTHS)):
        yield f"{word}\n" * _NUM_WORD_COPIES
        yield f" {word}\n" * _NUM_WORD_COPIES
    for word in (*COMMON_WORDS, *corpus_vocabulary()):
        yield f" {word}\n" * _NUM_COMMON_COPIES


def train_tokenizer(num_chats: int = NUM_TRAINING_CHATS) -> Tokenizer:
    """Train the tokenizer on `num_chats` generated chats and the word lists."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_SPLIT), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_training_texts(num_chats), trainer)
    return tokenizer


def load_or_train(path: Path) -> Tokenizer:
    """Return the tokenizer stored at `path`, after training and storing it if there is none."""
    if path.exists():
        return Tokenizer.from_file(str(path))
    tokenizer = train_tokenizer()
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return tokenizer


def encode_conversation(
    tokenizer: Tokenizer, conversation: Conversation
) -> tuple[list[int], list[int]]:
    """Return ids and unshifted labels of equal length; only answers with their end are labelled."""
    parts: list[str] = []
    for turn in conversation:
        parts += [f"{TURN_START}{turn.role}\n", f"{turn.text}{TURN_END}", "\n"]
    ids: list[int] = []
    labels: list[int] = []
    for index, encoding in enumerate(tokenizer.encode_batch(parts)):
        is_answer = index % 3 == 1 and conversation[index // 3].role == "assistant"
        ids += encoding.ids
        labels += encoding.ids if is_answer else [IGNORED_LABEL] * len(encoding.ids)
    return ids, labels
