"""Checkpoints with changed headers: `python -m support.checkpoints.mutated_headers` runs 10,000."""

import os
from pathlib import Path

import pytest

from support.checkpoints import mutated_headers
from support.checkpoints.mutated_headers import Outcomes, Subject, make_subjects, outcome, run

CASES = 40


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    return make_subjects(tmp_path_factory.mktemp("good"))


def test_what_is_not_changed_loads(subjects: list[Subject], tmp_path: Path) -> None:
    for number, subject in enumerate(subjects):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert outcome(subject, subject.read(), folder) == "loaded", subject.name


def test_a_changed_header_is_one_error_or_loads(subjects: list[Subject]) -> None:
    outcomes = Outcomes()
    for subject in subjects:
        run(subject, [f"test-{subject.name}-{i}" for i in range(CASES)], outcomes)
    assert outcomes.faults == []
    for subject in subjects:
        assert outcomes.counts[subject.name, "refused"] > CASES // 2, subject.name


def test_other_errors_and_dead_processes_are_faults(
    subjects: list[Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    (subject,) = [one for one in subjects if one.name == "index"]
    outcomes = Outcomes()

    def fails(config: object) -> None:
        raise KeyError("data_offsets")

    monkeypatch.setattr(mutated_headers, "load_replica", fails)
    run(subject, ["a", "b"], outcomes)

    def dies(config: object) -> None:
        os._exit(3)

    monkeypatch.setattr(mutated_headers, "load_replica", dies)
    run(subject, ["c", "d"], outcomes)
    said = "\n".join(outcomes.faults)
    assert len(outcomes.faults) == 4
    assert "KeyError: 'data_offsets'" in said
    assert "the process ended: 3" in said
