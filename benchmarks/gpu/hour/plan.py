"""All items in the order of their value, and the table of them."""

from hour.correctness import CORRECTNESS, ENVIRONMENT, SMOKE, THE_REST
from hour.items import Item, short_command
from hour.speed import LAST, SPEED

ITEMS: tuple[Item, ...] = (ENVIRONMENT, *SMOKE, *CORRECTNESS, *SPEED, *THE_REST, *LAST)
"""What runs if time is left. Rows of goals come before variants of what passed."""


def plan_table(items: tuple[Item, ...] = ITEMS) -> str:
    """Return the plan in Markdown: minutes of each item and up to its end."""
    lines = [
        "| # | item | minutes | sum | at most | goals | shows | needs | command |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    total = 0
    for number, item in enumerate(items, 1):
        # What stands in for another item takes its time.
        total += 0 if item.instead_of else item.seconds
        what = f"only if {item.instead_of} fails: {item.shows}" if item.instead_of else item.shows
        cells = (
            str(number),
            item.name,
            f"{item.seconds / 60:.1f}",
            "-" if item.instead_of else f"{total / 60:.1f}",
            f"{item.limit / 60:.1f}",
            ", ".join(map(str, item.rows)) or "-",
            what,
            ", ".join(item.needs) or "-",
            f"`{short_command(item.command)}`",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
