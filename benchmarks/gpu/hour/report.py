"""The report of the first hour, in Markdown and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from hour.findings import Figure, Finding, Predictions, figures, findings, not_run
from hour.items import Item, distributions, shown_command, variables
from hour.state import PASSED, Facts, Record

SHOWN_OUTPUT_LINES = 40


def number(value: float | None) -> str:
    """Return a figure for a reader."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def goal_table(rows: Sequence[Figure]) -> str:
    """Return the goals with what was seen."""
    lines = [
        "| row | what | limit | goal | expected | seen | of the goal | outcome |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        goal, sign = row.goal, "" if row.goal.is_more_better else "at most "
        reached = "-" if row.share is None else f"{min(row.share, 9.99):.0%}"
        cells = (
            str(goal.number),
            goal.what,
            number(goal.limit),
            f"{sign}{number(goal.goal)} {goal.unit}",
            number(row.expected),
            number(row.seen.value),
            reached,
            row.verdict,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def as_json(
    items: Sequence[Item], facts: Facts, predictions: Predictions, *, is_toy: bool
) -> Record:
    """Return the report as what JSON can hold."""
    return {
        "is_toy": is_toy,
        "environment": facts.environment,
        "call_minutes": [round(seconds / 60, 2) for seconds in facts.call_seconds],
        "goals": [
            {
                "row": row.goal.number,
                "what": row.goal.what,
                "goal": row.goal.goal,
                "unit": row.goal.unit,
                "expected": row.expected,
                "expected_note": row.expected_note,
                "seen": row.seen.value,
                "share": row.share,
                "outcome": row.verdict,
            }
            for row in figures(items, facts, predictions, is_toy=is_toy)
        ],
        "findings": [asdict(found) for found in findings(items, facts)],
        "not_run": not_run(items, facts),
        "items": {
            name: {key: value for key, value in end.items() if key != "output"}
            for name, end in facts.ends.items()
        },
    }


def as_markdown(
    items: Sequence[Item], facts: Facts, predictions: Predictions, *, is_toy: bool
) -> str:
    """Return the report for readers."""
    parts = ["# First hour on a GPU" + (" (rehearsal: figures mean nothing)" if is_toy else "")]
    parts.append(_environment(facts))
    bad = findings(items, facts)
    num_passed = sum(end["outcome"] == PASSED for end in facts.ends.values())
    minutes = " + ".join(f"{seconds / 60:.1f}" for seconds in facts.call_seconds)
    parts.append(
        f"{num_passed} items passed, {len(bad)} did not, "
        f"{len(not_run(items, facts))} have not run. Minutes of calls: {minutes or '0'}."
    )
    parts.append("## Goals\n\n" + goal_table(figures(items, facts, predictions, is_toy=is_toy)))
    if bad:
        parts.append("## Failures\n\n" + "\n\n".join(_failure(found, facts) for found in bad))
    parts.append("## Items\n\n" + _items(items, facts))
    left = not_run(items, facts)
    if left:
        lines = ["| item | why |", "| --- | --- |"]
        lines += [f"| {name} | {why} |" for name, why in left.items()]
        parts.append("## Not run\n\n" + "\n".join(lines))
    parts.append(_tables(items, facts))
    return "\n\n".join(part for part in parts if part) + "\n"


def _environment(facts: Facts) -> str:
    found = facts.environment
    if found is None:
        return "The environment is not known: that item has not ended."
    device = found["device"] or {"name": f"no device: {found['no_device']}"}
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [
        f"- device: {json.dumps(device)}",
        f"- driver: {found['driver']}; CUDA of torch: {found['cuda']}",
        f"- Python {found['python']}, {versions}",
        f"- compiler for Triton: {found['no_compiler'] or 'there'}",
        f"- not importable: {', '.join(found['missing_modules']) or 'nothing'}",
    ]
    if missing := found["missing_modules"]:
        version = ".".join(found["python"].split(".")[:2])
        lines.append(
            f"- to have them: `pip install --target FOLDER --only-binary :all: --python-version "
            f"{version} {' '.join(distributions(missing))}`, then `--packages FOLDER`"
        )
    lines.append(f"- commands below run from the repository with `{variables()}`")
    return "\n".join(lines)


def _failure(found: Finding, facts: Facts) -> str:
    shown = "\n".join(found.output.splitlines()[-SHOWN_OUTPUT_LINES:])
    device = ((facts.environment or {}).get("device") or {}).get("name", "no device")
    lines = [
        f"### {found.item}: {found.outcome}, exit code {found.code}, {found.seconds:.0f} s",
        f"On {device}. Shortest reproduction: `{found.reproduction}`",
    ]
    if found.failed_tests:
        lines.append("Failed: " + ", ".join(f"`{name}`" for name in found.failed_tests))
    if found.blocks:
        lines.append("It blocks: " + ", ".join(found.blocks))
    lines.append(f"```\n{shown}\n```")
    return "\n\n".join(lines)


def _items(items: Sequence[Item], facts: Facts) -> str:
    lines = ["| item | outcome | seconds | expected | tests |", "| --- | --- | --- | --- | --- |"]
    for item in items:
        end = facts.ends.get(item.name)
        if end is not None:
            tests = ", ".join(f"{count} {word}" for word, count in end.get("tests", {}).items())
            lines.append(
                f"| {item.name} | {end['outcome']} | {end['seconds']:.0f} | {item.seconds} | "
                f"{tests or '-'} |"
            )
    return "\n".join(lines)


def _tables(items: Sequence[Item], facts: Facts) -> str:
    """Return the tables that items wrote, each once."""
    parts, known = [], set()
    for item in items:
        result = facts.ends.get(item.name, {}).get("result") or {}
        for table in result.get("tables", []):
            key = json.dumps(table)
            if key in known or not table["rows"]:
                continue
            known.add(key)
            columns = list(table["rows"][0])
            lines = [f"### {item.name}: {table['title']}", "", "| " + " | ".join(columns) + " |"]
            lines.append("| " + " | ".join("---" for _ in columns) + " |")
            for row in table["rows"]:
                cells = (number(v) if isinstance(v, float) else str(v) for v in row.values())
                lines.append("| " + " | ".join(cells) + " |")
            parts.append(f"`{shown_command(item.command)}`\n\n" + "\n".join(lines))
    return "## Tables\n\n" + "\n\n".join(parts) if parts else ""


def write(
    folder: Path, items: Sequence[Item], facts: Facts, predictions: Predictions, *, is_toy: bool
) -> None:
    """Write report.md and report.json; a reader never sees half of one."""
    texts = {
        "report.md": as_markdown(items, facts, predictions, is_toy=is_toy),
        "report.json": json.dumps(as_json(items, facts, predictions, is_toy=is_toy), indent=1),
    }
    for name, text in texts.items():
        part = folder / f".{name}.part"
        part.write_text(text)
        part.replace(folder / name)
