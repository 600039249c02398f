"""How a start looks: one moving line on a terminal, plain lines elsewhere."""

import io

from pagewire.cli.progress import StartProgress
from pagewire.local.child_process import LineReceived
from pagewire.local.notices import ChildReady, Loading, StandingBy, StoodDown
from pagewire.local.supervision import BecameReady, Restarting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    progress = StartProgress(stream)
    for percent in range(101):
        progress.show(Loading("worker-0", percent / 100, "loading weights"))
    progress.show(LineReceived("worker-0", "a log line"))
    progress.show(ChildReady("worker-0"))
    progress.show(BecameReady())
    progress.show(Restarting("worker-0", "killed by SIGKILL", 0.1))
    progress.show(Loading("worker-0", 0.5, "loading weights"))
    progress.show(ChildReady("worker-0"))
    return stream.getvalue()


def test_without_a_terminal_lines_are_few() -> None:
    lines = shown(io.StringIO()).splitlines()
    assert lines[0].startswith("pagewire: worker-0: loading weights 0% (")
    assert sum("loading weights" in line for line in lines) == 5
    assert "worker-0 | a log line" in lines
    assert lines[-2] == ("pagewire: worker-0 ended (killed by SIGKILL); starting it again in 0.1 s")
    assert lines[-1] == "pagewire: worker-0 is ready again"


def test_a_terminal_gets_one_moving_line() -> None:
    text = shown(Terminal())
    assert text.count("loading weights") == 101
    assert text.count("\n") == 3
    assert "\r\x1b[Kworker-0 | a log line\n" in text


def test_a_standby_is_reported() -> None:
    stream = io.StringIO()
    progress = StartProgress(stream)
    progress.show(BecameReady())
    progress.show(StandingBy("scheduler", 1234))
    progress.show(StoodDown("scheduler", "scheduler answers again"))
    progress.show(Restarting("scheduler", "hung: nothing", 0.0))
    assert stream.getvalue().splitlines() == [
        "pagewire: scheduler does not answer; a replacement stands by",
        "pagewire: the replacement of scheduler has ended: scheduler answers again",
        "pagewire: scheduler ended (hung: nothing); starting it again now",
    ]
