"""Results as text: the table of the terminal, the table of the model card, the JSON file and the
differences to a stored one; it judges nothing.
"""

import json
from pathlib import Path
from typing import Any, Final

from builtin_recipe.evaluation.grading import Report, Row, Tally, Wrong, allowed_difference, differs

_TAIL_CHARACTERS: Final = 200
_NONE_BELOW: Final = "no cell is below its floor"
_SIDES: Final = {"trained": False, "held out": True}


def table_text(report: Report, seconds: float) -> str:
    """Return the table for a terminal, with the total, failed requests and the time below it."""
    rows = [*report.rows, report.total()]
    width = max(len(row.name) for row in rows)
    sides = (f"{name:>17} {'share':>6} {'floor':>6}" for name in _SIDES)
    lines = [" ".join((f"{'cell':{width}}", *sides))]
    for row in rows:
        below = [name for name, is_held_out in _SIDES.items() if row.is_below(is_held_out)]
        mark = f"  <- below its floor: {', '.join(below)}" if below else ""
        lines.append(f"{row.name:{width}} {_side_text(row, False)} {_side_text(row, True)}{mark}")
    lines += [f"{count} requests failed: {error}" for error, count in report.errors.most_common()]
    num_below = len(report.cells_below())
    lines.append(f"cells below their floor: {num_below}" if num_below else _NONE_BELOW)
    lines.append(f"{seconds:.1f} s")
    return "\n".join(lines)


def _side_text(row: Row, is_held_out: bool) -> str:
    tally, lowest = row.side(is_held_out), row.lowest_share(is_held_out)
    floor = "-" if lowest is None else f"{lowest:.3f}"
    share = f"{tally.share:.3f}" if tally.num_asked else "-"
    return f"{tally.num_right:>8} of {tally.num_asked:>5} {share:>6} {floor:>6}"


def markdown_table(report: Report) -> str:
    """Return the table of the model card."""
    lines = [
        "| cell | trained wordings | of | floor | held-out wordings | of | floor |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in (*report.rows, report.total()):
        cells = [row.name]
        for is_held_out in (False, True):
            tally = row.side(is_held_out)
            floor = "" if row.floor is None else f"{row.floor.of_side(is_held_out):.2f}"
            cells += [f"{tally.share:.3f}", str(tally.num_asked), floor]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def wrong_text(report: Report, num_per_cell: int) -> str:
    """Return up to `num_per_cell` wrong answers of every cell and side."""
    seen: dict[tuple[str, bool], int] = {}
    lines: list[str] = []
    for wrong in report.wrong:
        key = (wrong.question.cell, wrong.question.is_held_out)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= num_per_cell:
            lines += _wrong_lines(wrong)
    return "\n".join(lines)


def _wrong_lines(wrong: Wrong) -> list[str]:
    question, answer = wrong.question, wrong.answer
    side = "held out" if question.is_held_out else "trained"
    got = f"error: {answer.error}" if answer.error else repr(answer.text)
    # A story has no one right answer.
    wanted = "a story" if question.topic is not None else repr(question.wanted)
    return [
        f"[{question.cell}, {side}] ...{question.turns[-1].text[-_TAIL_CHARACTERS:]!r}",
        f"    wanted {wanted}",
        f"    got    {got}{'' if answer.is_stopped or answer.error else ' [cut]'}",
    ]


def write_json(report: Report, path: Path, **about: str | float | None) -> None:
    """Store the counts of every row; `about` says what was measured, and how."""
    content: dict[str, Any] = {
        **about,
        "cells": [
            {
                "name": row.name,
                "floor": row.floor
                and {"trained": row.floor.trained, "held_out": row.floor.held_out},
                "trained": _tally_dict(row.trained),
                "held_out": _tally_dict(row.held_out),
            }
            for row in report.rows
        ],
        "errors": dict(report.errors),
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _tally_dict(tally: Tally) -> dict[str, int | float]:
    return {
        "right": tally.num_right,
        "asked": tally.num_asked,
        "errors": tally.num_errors,
        "share": tally.share,
    }


def read_rows(path: Path) -> dict[str, Row]:
    """Return the rows of a stored result by name.

    Raises `OSError` or `ValueError` for a file that is none.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return {
            cell["name"]: Row(
                cell["name"],
                trained=_read_tally(cell["trained"]),
                held_out=_read_tally(cell["held_out"]),
            )
            for cell in cells
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is no stored result: {error!r}") from None


def _read_tally(stored: dict[str, int]) -> Tally:
    return Tally(stored["right"], stored["asked"], stored["errors"])


def compared_text(report: Report, stored: dict[str, Row]) -> tuple[str, bool]:
    """Return the difference of every cell to `stored`, and whether all are small enough.

    A cell that the stored result lacks counts as too different.
    """
    width = max(len(row.name) for row in report.rows)
    lines = [f"{'difference to the stored result':{width}}   trained  held out  allowed"]
    is_equal = True
    for row in report.rows:
        other = stored.get(row.name)
        if other is None:
            is_equal = False
            lines.append(f"{row.name:{width}} is not in the stored result")
            continue
        pairs = [(row.side(is_held_out), other.side(is_held_out)) for is_held_out in (False, True)]
        has_gap = any(differs(ours, theirs) for ours, theirs in pairs)
        is_equal = is_equal and not has_gap
        gaps = "".join(f"{ours.share - theirs.share:>+10.3f}" for ours, theirs in pairs)
        allowed = max(allowed_difference(ours, theirs) for ours, theirs in pairs)
        mark = "  <- differs" if has_gap else ""
        lines.append(f"{row.name:{width}}{gaps} {allowed:>8.3f}{mark}")
    lines.append("no cell differs" if is_equal else "there are cells that differ")
    return "\n".join(lines), is_equal
