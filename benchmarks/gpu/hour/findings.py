"""What was found: goals, failures with their shortest reproduction, what did not run and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from hour.choice import DONE, blocked_by, standings
from hour.goals import GOALS, Goal, Seen, is_met, seen, share
from hour.items import PYTEST, Item, shown_command
from hour.state import CRASHED, CUT, HUNG, PASSED, Facts, Record

INTERRUPTED = "interrupted: the harness was killed each time it ran"

Predictions = Mapping[str, Record]
"""Number of a goal -> expected, unit and note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An item that did not pass.

    Attributes:
        item, outcome: Which one, and how it ended.
        reproduction: One command.
        failed_tests: Names, where it is a selection of tests.
        blocks: Items that did not run because of it.
        output: The end of what it printed.
    """

    item: str
    outcome: str
    code: int
    seconds: float
    reproduction: str
    failed_tests: Sequence[str]
    blocks: Sequence[str]
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A goal and what was seen of it.

    Attributes:
        goal, seen: The goal, and its figure.
        doubts: Items that should show that what was measured is right, and have not passed.
        expected: What was predicted; None where nothing was.
        expected_note: What the prediction stands on.
    """

    goal: Goal
    seen: Seen
    doubts: Sequence[str]
    expected: float | None
    expected_note: str

    @property
    def share(self) -> float | None:
        """Of the goal."""
        return None if self.seen.value is None else share(self.goal, self.seen.value)

    @property
    def verdict(self) -> str:
        """Return in words whether the goal is reached."""
        met = is_met(self.goal, self.seen)
        words = [{None: "open", True: "reached", False: "not reached"}[met]]
        if self.seen.value is None:
            words = ["not measured"]
        if self.seen.is_eager:
            words.append("without graphs")
        if self.seen.proof is not None:
            words.append(str(self.seen.proof["what"]))
        if self.doubts and self.seen.value is not None:
            words.append("not shown to be right: " + ", ".join(self.doubts))
        return "; ".join(words)


def figures(
    items: Sequence[Item], facts: Facts, predictions: Predictions, *, is_toy: bool = False
) -> list[Figure]:
    """Return every goal with its figure."""
    results = {name: end["result"] for name, end in facts.ends.items() if end.get("result")}
    found = []
    for goal in GOALS:
        value = seen(goal, results, is_toy=is_toy)
        sources = [item for item in items if goal.number in item.rows and item.name in results]
        if not value.is_eager:
            sources = [item for item in sources if not item.instead_of]
        doubts = dict.fromkeys(
            f"{name} {facts.outcome(name) or 'did not run'}"
            for item in sources
            for name in item.proven_by
            if facts.outcome(name) != PASSED
        )
        expected = predictions.get(str(goal.number), {})
        found.append(
            Figure(
                goal=goal,
                seen=value,
                doubts=list(doubts),
                expected=expected.get("expected"),
                expected_note=str(expected.get("note", "")),
            )
        )
    return found


def findings(items: Sequence[Item], facts: Facts) -> list[Finding]:
    """Return the items that ended and did not pass, in their order."""
    found = []
    for item in items:
        end = facts.ends.get(item.name)
        if end is None and facts.outcome(item.name) == CUT:
            end = {"outcome": INTERRUPTED, "code": -9, "seconds": 0.0, "output": ""}
        if end is None or end["outcome"] == PASSED:
            continue
        found.append(
            Finding(
                item=item.name,
                outcome=str(end["outcome"]),
                code=end["code"],
                seconds=end["seconds"],
                reproduction=reproduction(item, end),
                failed_tests=end.get("failed_tests", []),
                blocks=[name for name in blocked_by(item.name, items) if name not in facts.ends],
                output=end["output"],
            )
        )
    return found


def reproduction(item: Item, end: Record) -> str:
    """Return the shortest command that shows a failure: one test, where it is known which."""
    tests = end.get("failed_tests") or []
    if end["outcome"] in {CRASHED, HUNG, CUT} and end.get("last_test"):
        tests = [end["last_test"]]
    command = item.command
    if item.is_pytest and tests:
        kept = PYTEST[: PYTEST.index("--maxfail")]
        command = (*kept, str(tests[0]))
    prefix = "CUDA_LAUNCH_BLOCKING=1 " if end["outcome"] == CRASHED or _is_illegal(end) else ""
    return prefix + shown_command(command)


def _is_illegal(end: Record) -> bool:
    words = ("illegal memory access", "device-side assert", "misaligned address")
    return any(word in end["output"] for word in words)


def not_run(items: Sequence[Item], facts: Facts) -> dict[str, str]:
    """Return what has no end yet, and why."""
    return {
        name: f"{standing.kind}: {standing.why}" if standing.why else standing.kind
        for name, standing in standings(items, facts).items()
        if standing.kind != DONE
    }


def is_doubtful(item: Item, facts: Facts) -> bool:
    """Return whether an item measures something that is not shown to be right."""
    return any(facts.outcome(name) != PASSED for name in item.proven_by)


def outcome_of_check(check: str, items: Sequence[Item], facts: Facts) -> str:
    """Return what stands in "last outcome" of docs/gpu-checks.md; "" while none of it has run."""
    parts = [item for item in items if item.check == check and not item.instead_of]
    ends = [(item, facts.ends[item.name]) for item in parts if item.name in facts.ends]
    if not ends:
        return ""
    bad = [(item, end) for item, end in ends if end["outcome"] != PASSED]
    num_tests = sum(end.get("tests", {}).get("passed", 0) for _, end in ends)
    passed = f"{num_tests} tests passed" if num_tests else f"{len(ends) - len(bad)} passed"
    words = [f"{_place(facts, ends)}: {passed}"]
    for item, end in bad:
        tests = end.get("tests", {})
        count = f", {tests['failed']} tests" if tests.get("failed") else ""
        words.append(f"{item.name} {end['outcome']}{count}: `{reproduction(item, end)}`")
    if missing := [item.name for item in parts if item.name not in facts.ends]:
        words.append(f"not run: {', '.join(missing)}")
    if any(is_doubtful(item, facts) for item, end in ends if end["outcome"] == PASSED):
        words.append("not all that shows it right has passed")
    return "; ".join(words)


def _place(facts: Facts, ends: Sequence[tuple[Item, Record]]) -> str:
    device = (facts.environment or {}).get("device") or {"name": "no device"}
    last = max(float(end["at"]) for _, end in ends)
    return f"{device['name']}, {datetime.fromtimestamp(last, UTC):%Y-%m-%d}"
