"""Fields of the scheduler's state are assigned by their owners only: the modules and folders of the
table below. Other modules call the methods of a component, or functions of its owners."""

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest

from support.source_tree import ROOT

CORE = ROOT / "services/scheduler/pagewire_scheduler/core"

CLASSES = {
    "Sequence": "state/request.py",
    "Placement": "state/request.py",
    "Branching": "state/request.py",
    "Fairness": "state/sequence_parts.py",
    "Remote": "state/sequence_parts.py",
    "Outcome": "state/sequence_parts.py",
    "WorkerState": "state/worker.py",
    "Duty": "data/duty.py",
    "Handoffs": "state/worker.py",
    "WaitingAside": "state/waiting_queue.py",
    "WantedAdapter": "state/waiting_queue.py",
    "WorkerSlots": "state/slots.py",
    "VoidNames": "state/void_names.py",
}
"""Class -> its file, whose methods may always assign the fields."""

OWNERS = {
    # Every token reads or assigns these fields: a component for them cost 3 to 8 % of a step.
    "Sequence.num_computed": ("planning/", "state/worker.py"),
    "Sequence.num_in_flight": ("planning/", "results/apply.py"),
    "Sequence.num_outstanding": ("planning/", "results/apply.py"),
    "Sequence.last_step": ("planning/",),
    "Sequence.fast_path_until": ("planning/", "state/worker.py"),
    "Sequence.lateness": ("planning/left_out.py",),
    "Sequence.num_counted": ("state/accounts.py",),
    "Sequence.num_cached_tokens": ("planning/schedule_waiting.py",),
    "Sequence.slot": ("state/worker.py",),
    # Few moments assign these.
    "Sequence.reports_prompt_logprobs": ("planning/schedule_waiting.py",),
    "Sequence.table": ("planning/schedule_waiting.py", "state/worker.py"),
    "Sequence.max_len": ("routing/queues.py",),
    "Placement": ("state/",),
    "Placement.num_expected": ("routing/placement.py",),
    "Fairness": ("planning/",),
    "Remote": ("transfers/", "state/loads.py"),
    "Branching": ("parallel/",),
    "Branching.candidates": ("results/apply.py",),
    "Outcome": ("results/",),
    "Outcome.stop_token_id": ("parallel/beam_group.py",),
    "WantedAdapter.num_passed": ("queueing/adapter_slots.py",),
    "WorkerState.is_blocked": ("planning/",),
    "WorkerState.branched": ("planning/planner.py",),
    "WorkerState.next_step_id": ("planning/planner.py",),
    "Duty": ("routing/draining.py",),
    "Duty.sleep": ("routing/sleeping.py",),
    "Duty.sleep_order": ("routing/sleeping.py", "routing/updating.py"),
    "Duty.update": ("routing/updating.py",),
    "Duty.is_paused": ("routing/updating.py",),
}
"""Component, or field -> the files and folders of the core that may assign it."""

NAMESAKES = {
    ("handoff", "load"),
    ("probe", "outcome"),
    ("totals", "num_preemptions"),
    ("counts", "num_preemptions"),
}
"""(Object, field) of other classes, where a field has the name of one of a component."""

MAX_FIELDS = {"Sequence": 24, "WorkerState": 15}
"""Fields of a record beside its components."""

PARTS = {
    *("placement", "fairness", "remote", "branch", "outcome", "times"),
    *("pool", "reservations", "slots", "aside", "loads", "handoffs", "grammars", "adapters"),
    *("fault_isolation", "void_names", "duty", "drafts"),
}
"""The names of the components."""


def fields_of(tree: ast.Module, name: str) -> set[str]:
    """The fields of a class: annotated in a dataclass, or assigned in `__init__`."""
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    fields = {
        node.target.id
        for node in found.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            fields |= {field for owner, field in assignments(node) if owner == "self"}
    return fields


def assignments(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(object, field) of every assignment to an attribute; the object is its last name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            value = node.value
            if isinstance(value, ast.Name | ast.Attribute):
                yield value.id if isinstance(value, ast.Name) else value.attr, node.attr
            else:
                yield ast.unparse(value), node.attr


def components() -> dict[str, list[str]]:
    """Field -> the classes that have it."""
    found = defaultdict(list)
    for name, path in CLASSES.items():
        for field in fields_of(ast.parse((CORE / path).read_text()), name):
            found[field].append(name)
    return dict(found)


def is_owner(path: str, name: str, field: str) -> bool:
    owners = (CLASSES[name], *OWNERS.get(name, ()), *OWNERS.get(f"{name}.{field}", ()))
    return path.startswith(owners)


def strangers(path: str, source: str, fields: dict[str, list[str]]) -> set[str]:
    """The fields that a file assigns without being an owner of them."""
    return {
        f"{owner}.{field}"
        for owner, field in assignments(ast.parse(source))
        # What an object assigns to itself is its own, in the file of its class.
        if owner != "self" and (owner, field) not in NAMESAKES
        if not any(is_owner(path, name, field) for name in fields.get(field, ()))
        if field in fields
    }


def core_sources() -> dict[str, str]:
    return {str(path.relative_to(CORE)): path.read_text() for path in CORE.rglob("*.py")}


def test_only_owners_assign_fields() -> None:
    fields = components()
    found = {path: strangers(path, text, fields) for path, text in core_sources().items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_no_owner_is_idle() -> None:
    """An entry of the table that allows nothing is taken out."""
    fields, needed = components(), set()
    for path, text in core_sources().items():
        for owner, field in assignments(ast.parse(text)):
            for name in fields.get(field, ()) if owner != "self" else ():
                for key in (name, f"{name}.{field}"):
                    needed |= {(key, one) for one in OWNERS.get(key, ()) if path.startswith(one)}
    assert {(key, one) for key, owners in OWNERS.items() for one in owners} == needed


@pytest.mark.parametrize(("name", "most"), MAX_FIELDS.items())
def test_records_are_small(name: str, most: int) -> None:
    fields = fields_of(ast.parse((CORE / CLASSES[name]).read_text()), name)
    assert len(fields - PARTS) <= most, sorted(fields - PARTS)


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("planning/a.py", "sequence.num_computed = 1", set()),
        ("transfers/a.py", "remote = sequence.remote\nremote.load = None", set()),
        ("routing/a.py", "sequence.fairness.num_skipped += 1", {"fairness.num_skipped"}),
        ("routing/a.py", "f = one.fairness\nf.lack, x = 1, 2", {"f.lack"}),
        ("routing/a.py", "for one.placement.queue in queues: pass", {"placement.queue"}),
        ("routing/a.py", "del sequence.slot", {"sequence.slot"}),
        ("transfers/a.py", "handoff.load = load", set()),
        ("routing/a.py", "find(sequence).table = None", {"find(sequence).table"}),
        ("routing/a.py", "self.load = 1", set()),
    ],
)
def test_strangers_are_found(path: str, source: str, expected: set[str]) -> None:
    assert strangers(path, source, components()) == expected
