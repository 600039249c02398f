"""The twelve goals of ../README.md, and where their figures stand in what the items write."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hour.state import Record

Results = Mapping[str, Record]
"""Item -> what it wrote: tables with titles and rows."""

Find = Callable[[Results, bool], list[float]]
"""Returns the figures of a goal, of each shape; the flag says that they are those of toys."""

STEPS_AS_SERVED = {"variant": "graphs", "in flight": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One row.

    Attributes:
        number: From 1.
        what: Is measured.
        goal, unit: On one H200.
        limit: Of physics, in the same unit; None for none.
        is_more_better: Otherwise less is.
        find: Its figures; of several the worst counts.
        find_instead: Figures without CUDA graphs, where there are no others.
        must_be_zero: Counts that have to be 0 besides, and their sum; None before they are there.
    """

    number: int
    what: str
    goal: float
    unit: str
    limit: float | None
    is_more_better: bool
    find: Find
    find_instead: Find = lambda _results, _is_toy: []
    must_be_zero: Callable[[Results, bool], Record | None] | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found for a goal: its figure, whether without graphs, what else was counted."""

    value: float | None
    is_eager: bool = False
    proof: Record | None = None


def seen(goal: Goal, results: Results, *, is_toy: bool = False) -> Seen:
    """Return a goal's figure."""
    proof = goal.must_be_zero(results, is_toy) if goal.must_be_zero else None
    for find, is_eager in ((goal.find, False), (goal.find_instead, True)):
        if values := find(results, is_toy):
            return Seen(min(values) if goal.is_more_better else max(values), is_eager, proof)
    return Seen(None, proof=proof)


def share(goal: Goal, value: float) -> float:
    """Return the share of the goal that a figure reaches: 1 and more reach it."""
    if goal.is_more_better:
        return value / goal.goal
    return goal.goal / value if value > 0 else float("inf")


def is_met(goal: Goal, found: Seen) -> bool | None:
    """Return whether a goal is reached; None where something was not measured."""
    if found.value is None or (goal.must_be_zero and found.proof is None):
        return None
    if found.proof is not None and (found.proof["different"] or not found.proof["is_enough"]):
        return False
    return share(goal, found.value) >= 1


def _rows(
    result: Record | None, title: str, where: Mapping[str, object], *, is_toy: bool
) -> list[Record]:
    """Return rows of tables whose title has a text. A toy's rows have the columns, other values."""
    return [
        row
        for table in (result or {}).get("tables", [])
        if title in table["title"]
        for row in table["rows"]
        if all(
            name in row and (is_toy or row[name] == value or _begins(row[name], value))
            for name, value in where.items()
        )
    ]


def _begins(cell: object, value: object) -> bool:
    return isinstance(value, str) and value.endswith("*") and str(cell).startswith(value[:-1])


def column(
    items: Sequence[str], title: str, where: Mapping[str, object], name: str, factor: float = 1
) -> Find:
    """Return what finds one column in the tables of items, which are of other shapes."""

    def find(results: Results, is_toy: bool) -> list[float]:
        return [
            float(row[name]) * factor
            for item in items
            for row in _rows(results.get(item), title, where, is_toy=is_toy)
            if row[name] is not None
        ]

    return find


def _served_share(results: Results, is_toy: bool) -> list[float]:
    shares = []
    for size in ("0.6b", "8b"):
        figures = []
        for item, path in ((f"job-{size}-served", "served"), (f"job-{size}", "in-process")):
            rows = _rows(results.get(item), "requests", {"path": path}, is_toy=False)
            figures += [float(row["tok/s"]) for row in rows]
        if len(figures) == 2 or (is_toy and len(figures) > 1):
            shares.append(figures[0] / figures[1])
    return shares


def _tax(results: Results, is_toy: bool) -> list[float]:
    where = {"what": "exact mode*", "in flight": 2}
    return [
        (row["step ms"] / row["ms without"] - 1) * 100
        for item in ("exact-fp8-0.6b", "exact-8b")
        for row in _rows(results.get(item), "compared", where, is_toy=is_toy)
    ]


def _other_bits(results: Results, is_toy: bool) -> Record | None:
    rows = _rows(results.get("invariance"), "alone and mixed", {"mixed batches": 0}, is_toy=True)
    if not rows:
        return None
    different = sum(row[name] for row in rows for name in row if "other" in name)
    num_answers, num_batches = rows[0]["answers"], rows[0]["mixed batches"]
    return {
        "what": f"{different} of {num_answers} answers differ in {num_batches} mixed batches",
        "different": different,
        "is_enough": is_toy or num_batches >= 10_000,
    }


def _steps(item: str, row: str, name: str) -> Find:
    return column((item,), "decode steps", {"row": row, **STEPS_AS_SERVED}, name)


def _eager_steps(item: str, batch: int, context: int, name: str) -> Find:
    where = {"variant": "eager", "in flight": 2, "batch": batch, "context": context}
    return column((item,), "decode steps", where, name)


GOALS = (
    Goal(
        number=1,
        what="the job in one process, Qwen3-0.6B",
        goal=26_000,
        unit="tokens/s",
        limit=36_409,
        is_more_better=True,
        find=column(("job-0.6b",), "requests", {"row": "1"}, "tok/s"),
        find_instead=column(("job-0.6b-eager",), "requests", {"row": "1"}, "tok/s"),
    ),
    Goal(
        number=2,
        what="the same with Qwen3-8B",
        goal=10_000,
        unit="tokens/s",
        limit=13_008,
        is_more_better=True,
        find=column(("job-8b",), "requests", {"row": "2"}, "tok/s"),
    ),
    Goal(
        number=3,
        what="the same, served, of the figure in one process",
        goal=0.95,
        unit="share",
        limit=1.0,
        is_more_better=True,
        find=_served_share,
    ),
    Goal(
        number=4,
        what="decode at batch 1, Qwen3-8B",
        goal=240,
        unit="tokens/s",
        limit=282,
        is_more_better=True,
        find=_steps("steps-8b", "4", "tok/s"),
        find_instead=_eager_steps("steps-8b-eager", 1, 1024, "tok/s"),
    ),
    Goal(
        number=5,
        what="decode at batch 1, Qwen3-0.6B",
        goal=1_700,
        unit="tokens/s",
        limit=3_398,
        is_more_better=True,
        find=_steps("steps-0.6b", "5", "tok/s"),
        find_instead=_eager_steps("steps-0.6b-eager", 1, 1024, "tok/s"),
    ),
    Goal(
        number=6,
        what="a step of 64 sequences with 640 tokens, Qwen3-8B",
        goal=6.2,
        unit="ms",
        limit=4.93,
        is_more_better=False,
        find=_steps("steps-8b", "6", "step ms"),
        find_instead=_eager_steps("steps-8b-eager", 64, 640, "step ms"),
    ),
    Goal(
        number=7,
        what="time to first token, p95, 128 tokens, Qwen3-8B",
        goal=8,
        unit="ms",
        limit=3.5,
        is_more_better=False,
        find=column(("ttft-8b",), "time to first token", {"row": "7"}, "p95 ms"),
        find_instead=column(("ttft-8b-eager",), "time to first token", {"row": "7"}, "p95 ms"),
    ),
    Goal(
        number=8,
        what="the same, 2,048 tokens",
        goal=50,
        unit="ms",
        limit=37.7,
        is_more_better=False,
        find=column(("ttft-8b",), "time to first token", {"row": "8"}, "p95 ms"),
        find_instead=column(("ttft-8b-eager",), "time to first token", {"row": "8"}, "p95 ms"),
    ),
    Goal(
        number=9,
        what="attention of 64 decodes alone, of a copy's rate",
        goal=0.88,
        unit="share",
        limit=1.0,
        is_more_better=True,
        find=column(
            ("kernels-8b", "kernels-0.6b"),
            "paged attention",
            {"kernel": "decode, batch 64, *"},
            "of the limit",
        ),
    ),
    Goal(
        number=10,
        what="idle between decode steps at batch 256, of either shape",
        goal=0.15,
        unit="ms",
        limit=0.0,
        is_more_better=False,
        find=lambda results, is_toy: [
            value
            for item in ("steps-0.6b", "steps-8b")
            for value in _steps(item, "10", "idle ms")(results, is_toy)
        ],
        find_instead=_eager_steps("steps-0.6b-eager", 256, 1024, "idle ms"),
    ),
    Goal(
        number=11,
        what="exact mode at batch 64 costs; no bit differs in 10,000 mixed batches",
        goal=10,
        unit="%",
        limit=0.0,
        is_more_better=False,
        find=_tax,
        must_be_zero=_other_bits,
    ),
    Goal(
        number=12,
        what="fp8 KV at batch 256 with 1,024 tokens, Qwen3-0.6B",
        goal=1.7,
        unit="times as fast",
        limit=1.93,
        is_more_better=True,
        find=column(
            ("exact-fp8-0.6b",), "compared", {"what": "fp8 KV*", "in flight": 2}, "speed-up"
        ),
    ),
)
