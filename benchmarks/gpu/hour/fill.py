"""Writes what was found into docs/gpu-checks.md: the last outcomes, the goals, the plan."""

import re
from collections.abc import Sequence

from hour.findings import Predictions, figures, outcome_of_check
from hour.items import Item
from hour.plan import plan_table
from hour.report import goal_table
from hour.state import Facts

COLUMN = "last outcome"


def between_markers(text: str, name: str, content: str) -> str:
    """Return `text` with what stands between the markers of a name replaced.

    Raises:
        ValueError: The markers are not there, or more than once.
    """
    begin, end = f"<!-- first hour: {name} -->\n", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the text needs one {begin.strip()} and one {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{content}\n{end}{after}"


def with_outcomes(text: str, items: Sequence[Item], facts: Facts) -> str:
    """Return `text` with the last cell of each check that has run replaced."""
    lines = text.splitlines(keepends=True)
    is_inside = False
    for number, line in enumerate(lines):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if not cells:
            is_inside = False
        elif cells[-1] == COLUMN:
            is_inside = True
        elif is_inside:
            outcome = outcome_of_check(cells[0], items, facts)
            if outcome:
                escaped = outcome.replace("|", "\\|").replace("\n", " ")
                lines[number] = "| " + " | ".join([*cells[:-1], escaped]) + " |\n"
    return "".join(lines)


def filled_page(text: str, items: Sequence[Item], facts: Facts, predictions: Predictions) -> str:
    """Return the page with outcomes, goals and plan."""
    text = with_outcomes(text, items, facts)
    text = between_markers(text, "plan", plan_table(tuple(items)))
    # Without a figure what stands there stays: it may be of an earlier device.
    rows = figures(items, facts, predictions)
    if any(row.seen.value is not None for row in rows) or "| row |" not in text:
        text = between_markers(text, "goals", goal_table(rows))
    return text
