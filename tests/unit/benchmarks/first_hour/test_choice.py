"""What runs next, and what the plan holds: pure."""

import re

import pytest
from hour.choice import BLOCKED, IMPOSSIBLE, NEEDLESS, blocked_by, next_item, standings
from hour.fill import filled_page
from hour.goals import GOALS
from hour.items import JSON
from hour.plan import ITEMS, plan_table
from hour.state import CUT, Facts, facts_of

from ..conftest import BENCHMARKS
from .conftest import DEVICE, ENVIRONMENT, item

ROOT = BENCHMARKS.parent


def facts(**outcomes: str) -> Facts:
    ends = {name: {"outcome": outcome} for name, outcome in outcomes.items()}
    return Facts(ends=ends, environment=ENVIRONMENT)


def test_the_first_item_that_fits_is_next():
    items = [item("a", seconds=50, limit=90), item("b", seconds=20), item("c", seconds=5)]
    assert next_item(items, facts(), 60).name == "a"
    assert next_item(items, facts(), 49).name == "b"
    assert next_item(items, facts(b="failed"), 49).name == "c"
    assert next_item(items, facts(), 4) is None


def test_an_item_waits_for_what_it_needs_and_is_blocked_by_its_failure():
    items = [item("a"), item("b", needs=("a",)), item("c", needs=("b",)), item("d")]
    assert not standings(items, facts())["b"].is_ready
    assert next_item(items, facts(a="passed"), 60).name == "b"
    after = standings(items, facts(a="crashed"))
    assert after["b"].kind == after["c"].kind == BLOCKED
    assert after["b"].why == "a crashed"
    assert "b is blocked" in after["c"].why
    assert next_item(items, facts(a="crashed"), 60).name == "d"
    assert blocked_by("a", items) == ["b", "c"]


def test_a_failed_proof_stops_nothing():
    items = [item("a"), item("b", proven_by=("a",))]
    assert next_item(items, facts(a="failed"), 60).name == "b"


def test_a_stand_in_runs_only_where_the_other_item_did_not_pass():
    items = [item("a"), item("b", instead_of="a")]
    assert not standings(items, facts())["b"].is_ready
    assert standings(items, facts(a="passed"))["b"].kind == NEEDLESS
    assert next_item(items, facts(a="hung"), 60).name == "b"


@pytest.mark.parametrize(
    ("settings", "environment", "why"),
    [
        ({"modules": frozenset({"grpc"})}, {"missing_modules": ["grpc", "x"]}, "importable: grpc"),
        ({}, {"device": None, "no_device": "torch says no"}, "torch says no"),
        ({}, {"no_compiler": "no cc"}, "no cc"),
        ({"capability": (8, 9)}, {"device": {**DEVICE, "capability": [8, 0]}}, "8, 9"),
        ({"gib": 100}, {"device": {**DEVICE, "gib": 79.2}}, "79 GiB of memory, needs 100"),
    ],
)
def test_what_a_machine_lacks_makes_items_impossible_and_is_named(settings, environment, why):
    found = Facts(environment={**ENVIRONMENT, **environment})
    items = [item("a", **settings), item("b", needs=("a",), modules=frozenset(), gib=0)]
    after = standings(items, found)
    assert after["a"].kind == IMPOSSIBLE
    assert why in after["a"].why
    assert why in after["b"].why
    assert standings(items[:1], Facts(environment=ENVIRONMENT))["a"].is_ready
    assert standings(items, found, is_rehearsal=True)["a"].is_ready


def test_an_item_that_was_cut_off_is_tried_once_more():
    start = {"event": "start", "item": "a", "token": "t"}
    end = {"event": "end", "item": "a", "outcome": CUT}
    assert facts_of([start, end]).outcome("a") == ""
    assert facts_of([start]).open_token == "t"
    assert facts_of([start, end, start, end]).outcome("a") == CUT
    assert facts_of([start, start]).outcome("a") == CUT


def test_the_plan_is_sound():
    names = [one.name for one in ITEMS]
    assert len(set(names)) == len(names)
    for place, one in enumerate(ITEMS):
        before = set(names[:place])
        assert {*one.needs, *one.proven_by, *filter(None, [one.instead_of])} <= before, one.name
        assert one.seconds < one.limit <= 9.5 * 60, one.name
        assert not one.rows or JSON in one.command, one.name
    assert {row for one in ITEMS for row in one.rows} == {goal.number for goal in GOALS}
    # Smoke, then what is right, then how fast.
    assert names.index("launch") < names.index("model-eager") < names.index("model-captured")
    assert max(names.index(n) for n in ("attention", "copies")) < names.index("ceilings")


def is_selected(test, command):
    """Whether a command of pytest runs a test, by its name."""
    file, _, name = command[-1].partition("::")
    if not test.startswith(file):
        return False
    if "-k" not in command:
        return name.partition("[")[0] in test
    words = re.sub(r"\w+", lambda word: f"{word[0]!r} in test", command[command.index("-k") + 1])
    words = re.sub(r"'(and|or|not)' in test", r"\1", words)
    return bool(eval(words, {"test": test}))


def test_every_test_of_a_device_has_an_item():
    selections = [one.command for one in ITEMS if one.is_pytest]
    for path in (ROOT / "tests" / "gpu").glob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE):
            for variant in ("float32", "bfloat16"):
                test = f"tests/gpu/{path.name}::{name}[{variant}]"
                assert any(is_selected(test, command) for command in selections), test


def test_every_check_of_the_docs_has_an_item():
    page = (ROOT / "docs" / "gpu-checks.md").read_text()
    table = page.split("| check |")[1].split("\n\n")[0].splitlines()[2:]
    checks = {line.split("|")[1].strip() for line in table}
    assert checks == {one.check for one in ITEMS if one.check}


def test_tests_that_items_name_are_there():
    for one in ITEMS:
        for word in one.command:
            path, _, name = word.partition("::")
            if name:
                assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text()


def test_the_page_has_the_plan_of_the_code():
    page = (ROOT / "docs" / "gpu-checks.md").read_text()
    assert plan_table() in page
    assert filled_page(page, ITEMS, Facts(), {}) == page


def test_goals_are_those_of_the_readme():
    readme = (BENCHMARKS / "gpu" / "README.md").read_text()
    for goal in GOALS:
        (line,) = re.findall(rf"^\| {goal.number} \| .*$", readme, re.MULTILINE)
        numbers = [float(found.replace(",", "")) for found in re.findall(r"[\d,.]*\d", line)]
        assert (goal.goal * 100 if goal.number == 3 else goal.goal) in numbers, line
