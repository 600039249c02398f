"""The demonstration of a kill: what it compares, and what it says."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from pagewire.cli.demo import describe
from pagewire.client.blocking_client import Client
from pagewire.client.events import Closed, Delta, Event, Finished, Timings, Usage
from pagewire.demo.kill import KillReport, run_kill
from pagewire_shared.errors import UnavailableError


class ScriptedClient:
    """Answers each request with the next list of texts, one token each."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = iter(answers)

    def complete(self, prompt: str, sampling: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of the next answer."""
        texts = next(self._answers)
        for position, text in enumerate(texts):
            yield Delta(0, position, [ord(text[0])], text)
        yield Finished(0, "length", "", None)
        yield Closed(Usage(1, len(texts), 0), Timings(0.1, 0.2, 0, num_recoveries=1))


def kill_in(*answers: list[str], after_tokens: int = 2) -> tuple[KillReport, list[str]]:
    """Run the demonstration with a process of its own; return the report and what was shown."""
    shown: list[str] = []
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        report = run_kill(
            cast(Client, ScriptedClient(*answers)),
            lambda: {"worker-0": victim.pid},
            {},
            after_tokens=after_tokens,
            show=shown.append,
            on_kill=lambda process, pid: shown.append(f"<{process}>"),
        )
        assert victim.wait(10) == -9
    finally:
        victim.kill()
        victim.wait()
    return report, shown


def test_equal_answers() -> None:
    report, shown = kill_in(["a", "b", "c"], ["a", "b", "c"])
    assert report.is_equal
    assert "".join(shown) == "ab<worker-0>c"
    assert (report.process, report.num_before, report.killed.num_recoveries) == ("worker-0", 2, 1)
    assert "equal: 3 tokens, 3 bytes" in describe(report)


@pytest.mark.parametrize(
    "other", [["a", "b", "d"], ["a", "b"], ["a", "b", "c", "d"], ["a", "bx", "c"]]
)
def test_any_difference_is_found(other: list[str]) -> None:
    report, _ = kill_in(["a", "b", "c"], other)
    assert not report.is_equal
    assert "NOT EQUAL" in describe(report)


def test_an_answer_that_ends_too_early_is_an_error() -> None:
    client = cast(Client, ScriptedClient(["a"], ["a"]))
    with pytest.raises(UnavailableError, match="after 1 tokens, before the kill"):
        run_kill(
            client,
            lambda: {"worker-0": os.getpid()},
            {},
            after_tokens=2,
            show=lambda text: None,
            on_kill=lambda process, pid: None,
        )
