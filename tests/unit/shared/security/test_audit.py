"""The audit log: whole lines, bounds, and a file that is moved away."""

import json
import logging
import threading

import pytest

from pagewire_shared.errors import StartupError
from pagewire_shared.security import audit


class Held(logging.Handler):
    """Keeps lines, once it may."""

    def __init__(self):
        super().__init__()
        self.may_write = threading.Event()
        self.lines = []

    def emit(self, record):
        self.may_write.wait(10.0)
        self.lines.append(json.loads(record.getMessage()))


@pytest.fixture
def held():
    handler = Held()
    yield handler
    handler.may_write.set()


def events(lines):
    return [line["event"] for line in lines]


def test_a_line_has_what_is_known(held):
    held.may_write.set()
    log = audit.AuditLog("frontend", held)
    log.note("admin_call", call="Sleep", who=None, asked={"level": 1})
    log.close()
    (line,) = held.lines
    assert (line["role"], line["event"], line["call"]) == ("frontend", "admin_call", "Sleep")
    assert line["asked"] == {"level": 1}
    assert "who" not in line
    assert line["time"].endswith("+00:00")


def test_refusals_have_a_rate_and_other_events_have_none(held):
    held.may_write.set()
    now = [0.0]
    log = audit.AuditLog("frontend", held, clock=lambda: now[0])
    for _ in range(700):
        log.note(audit.REFUSED)
    log.note("keys_changed")
    now[0] = 1.0
    for _ in range(60):
        log.note(audit.REFUSED)
    log.note("ended")
    log.close()
    found = events(held.lines)
    assert found.count(audit.REFUSED) == 550
    assert (found[500], held.lines[500]["num"], found[501]) == ("left_out", 200, "keys_changed")
    assert (found[-2], held.lines[-2]["num"], found[-1]) == ("left_out", 10, "ended")


def test_what_is_not_written_in_time_is_counted(held):
    log = audit.AuditLog("scheduler", held)
    for number in range(10_100):
        log.note("operator_call", number=number)
    held.may_write.set()
    while log._queue.qsize():
        pass
    log.note("ended")
    log.close()
    written = [line for line in held.lines if line["event"] == "operator_call"]
    (left_out,) = [line for line in held.lines if line["event"] == "left_out"]
    assert len(written) + left_out["num"] == 10_100


def test_a_file_that_is_moved_away_is_opened_anew(tmp_path):
    path = tmp_path / "audit"
    audit.use(str(path), "worker")
    audit.note("started")
    audit.close()
    audit.note("nowhere")
    audit.use(str(path), "worker")
    audit.note("again")
    wait_for_lines(path, 2)
    path.rename(tmp_path / "before")
    audit.note("later")
    audit.close()
    lines = (tmp_path / "before").read_text().splitlines()
    assert events(map(json.loads, lines)) == ["started", "again"]
    assert events(map(json.loads, path.read_text().splitlines())) == ["later"]


def wait_for_lines(path, count):
    while len(path.read_text().splitlines()) < count:
        pass


def test_a_file_that_cannot_be_opened_ends_the_start(tmp_path):
    with pytest.raises(StartupError, match=r"--audit-log: .* cannot be written"):
        audit.use(str(tmp_path / "none" / "audit"), "worker")
