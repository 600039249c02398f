"""Answers of an exported folder by `generate` of transformers: greedy, in batches of prompts of
similar length; it judges nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from builtin_recipe.evaluation.grading import Answer
from builtin_recipe.evaluation.questions import Question

_MAX_ROWS: Final = 128
_MAX_BATCH_TOKENS: Final = 65_536


def ask_transformers(
    folder: Path, questions: Sequence[Question], report: Callable[[int], None]
) -> list[Answer]:
    """Return one answer per question, in their order; `report` is told how many there are so far.

    The weights keep their stored type; the first CUDA device is used where there is one. Raises
    `OSError` or `ValueError` for a folder that is no model.
    """
    if not folder.is_dir():  # else it would be looked for on the hub
        raise ValueError(f"{folder} is no folder")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    network = network.to(device).eval()
    prompts = [_prompt_ids(tokenizer, question) for question in questions]
    answers: dict[int, Answer] = {}
    for batch in _batches(prompts, questions):
        rows = _generated(
            network,
            tokenizer,
            [prompts[index] for index in batch],
            max(questions[index].max_tokens for index in batch),
        )
        for index, ids in zip(batch, rows, strict=True):
            answers[index] = _answer(tokenizer, ids, questions[index].max_tokens)
        report(len(answers))
    return [answers[index] for index in range(len(questions))]


def _prompt_ids(tokenizer: Any, question: Question) -> list[int]:
    turns = [{"role": turn.role, "content": turn.text} for turn in question.turns]
    encoded = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
    ids: list[int] = encoded["input_ids"]
    return ids


def _batches(prompts: list[list[int]], questions: Sequence[Question]) -> Iterator[list[int]]:
    """Yield the places of questions that run together, answers of one length beside each other."""

    def sizes(index: int) -> tuple[int, int]:
        return questions[index].max_tokens // 64, len(prompts[index])

    batch: list[int] = []
    longest = 0
    for index in sorted(range(len(prompts)), key=sizes):
        longest = max(longest, len(prompts[index]) + questions[index].max_tokens)
        if batch and (len(batch) == _MAX_ROWS or (len(batch) + 1) * longest > _MAX_BATCH_TOKENS):
            yield batch
            batch, longest = [], len(prompts[index]) + questions[index].max_tokens
        batch.append(index)
    if batch:
        yield batch


@torch.no_grad()
def _generated(
    network: Any, tokenizer: Any, prompts: list[list[int]], max_tokens: int
) -> list[list[int]]:
    """Return the new ids of every row, with the end of turn and the padding behind it."""
    padded = tokenizer.pad({"input_ids": prompts}, return_tensors="pt").to(network.device)
    width = padded["input_ids"].shape[1]
    found: Tensor = network.generate(
        input_ids=padded["input_ids"],
        attention_mask=padded["attention_mask"],
        do_sample=False,
        max_new_tokens=max_tokens,
    )
    rows: list[list[int]] = found[:, width:].tolist()
    return rows


def _answer(tokenizer: Any, ids: list[int], max_tokens: int) -> Answer:
    """Cut the new ids of one row at the end of turn, or where its question ends them."""
    ids = ids[:max_tokens]
    is_stopped = tokenizer.eos_token_id in ids
    if is_stopped:
        ids = ids[: ids.index(tokenizer.eos_token_id)]
    return Answer(tokenizer.decode(ids, skip_special_tokens=True), is_stopped)
