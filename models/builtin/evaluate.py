"""Measure the exported weights; `--write` puts the table into the model card."""

import argparse
from pathlib import Path

import torch
from builtin_recipe.evaluation import accuracy_rows, cells, greedy_answers, score_cell
from builtin_recipe.exporting import load_export
from builtin_recipe.network import Decoder
from builtin_recipe.story_evaluation import score_other_wordings, score_stories
from tokenizers import Tokenizer

HERE = Path(__file__).parent
FOLDER = HERE.parent.parent / "pagewire" / "builtin_model"
CARD = HERE / "README.md"
START, END = "<!-- accuracy: written by evaluate.py -->", "<!-- end of accuracy -->"


def measured_table(network: Decoder, tokenizer: Tokenizer) -> str:
    """Return all measurements as a Markdown table."""
    lines = ["| skill (unseen examples) | exactly right | answers |", "| --- | --- | --- |"]
    lines += accuracy_rows([score_cell(network, tokenizer, cell) for cell in cells()])
    for name, score, has_topics in (
        ("story", score_stories(network, tokenizer), True),
        ("story, other wordings", score_other_wordings(network, tokenizer), False),
    ):
        for check, count in score.rows(has_topics):
            share = count / score.num_stories
            lines.append(f"| {name}: {check} | {share:.2f} | {score.num_stories} |")
    return "\n".join(lines)


def write_table(table: str) -> None:
    """Replace the table between the two markers of the model card."""
    before, _, rest = CARD.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    CARD.write_text(f"{before}{START}\n{table}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Read the command line and print the table or the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="update the model card")
    parser.add_argument("--ask", nargs="+", help="print greedy answers to these questions instead")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    network, tokenizer = load_export(arguments.folder)
    if arguments.ask:
        answers = greedy_answers(network, tokenizer, arguments.ask)
        for question, (answer, is_stopped) in zip(arguments.ask, answers, strict=True):
            print(f"> {question}\n{answer}{'' if is_stopped else ' [cut]'}\n")
        return
    table = measured_table(network, tokenizer)
    print(table)
    if arguments.write:
        write_table(table)


if __name__ == "__main__":
    main()
