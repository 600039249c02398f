"""Check the answers of the built-in model: `--url http://127.0.0.1:8000/v1` asks any
OpenAI-compatible server, `--transformers FOLDER` the reference; without either, a server of this
project is started for the shipped folder.

Exit status: 0, 1 where a cell is below its floor or differs from the stored result, 2 where nothing
could be asked.
"""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from builtin_recipe.evaluation.endpoint import Endpoint, EndpointError, ask_endpoint
from builtin_recipe.evaluation.exam import (
    NUM_PER_CELL,
    chosen_cells,
    draw_questions,
    plain_question,
)
from builtin_recipe.evaluation.grading import Answer, Report, Row, grade
from builtin_recipe.evaluation.local_server import ServerError, served
from builtin_recipe.evaluation.questions import Cell, Question
from builtin_recipe.evaluation.reporting import (
    compared_text,
    markdown_table,
    read_rows,
    table_text,
    write_json,
    wrong_text,
)

HERE: Final = Path(__file__).parent
FOLDER: Final = HERE.parent.parent / "pagewire" / "builtin_model"
CARD: Final = HERE / "README.md"
START, END = "<!-- accuracy: written by evaluate.py -->", "<!-- end of accuracy -->"
PROGRESS_STEP: Final = 1000
BELOW, UNUSABLE = 1, 2


def write_table(table: str, card: Path = CARD) -> None:
    """Replace the table between the two markers of the model card."""
    before, _, rest = card.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    card.write_text(f"{before}{START}\n{table}\n{END}{after}", encoding="utf-8")


def read_command_line(words: list[str] | None = None) -> argparse.Namespace:
    """Return the options; ends the process with status 2 where they do not fit together."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--url", help="an OpenAI-compatible server, such as http://host:8000/v1")
    source.add_argument(
        "--transformers", type=Path, metavar="FOLDER", help="generate with transformers instead"
    )
    parser.add_argument("--model", help="name to ask the server for, if it serves several")
    parser.add_argument(
        "--limit",
        type=int,
        default=NUM_PER_CELL,
        metavar="N",
        help=f"prompts per cell and side (default: {NUM_PER_CELL}); fewer lower the floors",
    )
    parser.add_argument("--skills", default="", help="only these skills or cells, by commas")
    parser.add_argument("--concurrency", type=int, default=32, help="requests at a time")
    parser.add_argument("--wrong", type=int, default=0, metavar="K", help="print K wrong answers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the result")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="differ from no stored result")
    parser.add_argument("--write", action="store_true", help="update the model card")
    parser.add_argument("--ask", nargs="+", help="print greedy answers to these questions instead")
    options = parser.parse_args(words)
    if options.limit < 1 or options.concurrency < 1:
        parser.error("--limit and --concurrency are at least 1")
    if options.write and options.skills:
        parser.error("--write needs all cells, so no --skills")
    return options


def ask(options: argparse.Namespace, questions: list[Question]) -> tuple[str, list[Answer]]:
    """Return what was asked, and the answers.

    Raises `EndpointError`, `ServerError`, `OSError` or `ValueError`.
    """
    report = progress_of(len(questions))
    if options.transformers is not None:
        # torch is needed here only: the other half runs wherever openai is installed.
        from builtin_recipe.evaluation.local_answers import ask_transformers

        answers = ask_transformers(options.transformers, questions, report)
        return f"transformers on {options.transformers}", answers
    with nullcontext(options.url) if options.url else served(FOLDER) as url:
        endpoint = Endpoint(url, options.model, options.concurrency)
        model, answers = ask_endpoint(endpoint, questions, report)
    return f"{model} at {url}", answers


def progress_of(num_questions: int) -> Callable[[int], None]:
    """Return a function that prints how many answers there are, at every `PROGRESS_STEP`."""
    next_step = PROGRESS_STEP

    def report(num_answers: int) -> None:
        nonlocal next_step
        if num_answers >= next_step:
            next_step += PROGRESS_STEP
            print(f"{num_answers} of {num_questions} answers", file=sys.stderr, flush=True)

    return report


def print_answers(options: argparse.Namespace) -> int:
    """Print the answers to the questions of the command line and return the exit status."""
    _, answers = ask(options, [plain_question(text) for text in options.ask])
    for question, answer in zip(options.ask, answers, strict=True):
        mark = f"[error] {answer.error}" if answer.error else "" if answer.is_stopped else " [cut]"
        print(f"> {question}\n{answer.text}{mark}\n")
    return BELOW if any(answer.error for answer in answers) else 0


def examine_answers(
    options: argparse.Namespace, cells: list[Cell], stored: dict[str, Row] | None
) -> int:
    """Ask everything, print and store what came out, and return the exit status."""
    started = time.monotonic()
    source, answers = ask(options, questions := draw_questions(cells, options.limit))
    report = grade(cells, questions, answers)
    seconds = time.monotonic() - started
    if options.wrong > 0:
        print(wrong_text(report, options.wrong))
    print(f"{source}, {len(questions)} prompts\n{table_text(report, seconds)}")
    if options.json is not None:
        write_json(report, options.json, source=source, limit=options.limit, seconds=seconds)
    if options.write:
        write_table(markdown_table(report))
    return exit_status(report, stored)


def exit_status(report: Report, stored: dict[str, Row] | None) -> int:
    """Compare with a stored result if there is one, and return the exit status."""
    is_equal = True
    if stored is not None:
        text, is_equal = compared_text(report, stored)
        print(text)
    if not report.has_answers():
        print("evaluate.py: not one request was answered", file=sys.stderr)
        return UNUSABLE
    return BELOW if report.cells_below() or not is_equal else 0


def main(words: list[str] | None = None) -> int:
    """Read the command line, ask, and return the exit status."""
    options = read_command_line(words)
    try:
        if options.ask:
            return print_answers(options)
        cells = chosen_cells(name.strip() for name in options.skills.split(",") if name.strip())
        stored = None if options.compare is None else read_rows(options.compare)
        return examine_answers(options, cells, stored)
    except (EndpointError, ServerError, OSError, ValueError) as error:
        print(f"evaluate.py: {error}", file=sys.stderr)
        return UNUSABLE


if __name__ == "__main__":
    raise SystemExit(main())
