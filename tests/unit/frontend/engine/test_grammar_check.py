"""Checks in processes that are slow, too large, or killed. What is slow here really is."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagewire_frontend.grammar import check as grammar_check
from pagewire_frontend.grammar import process as grammar_process
from pagewire_frontend.grammar.check import GrammarChecker
from pagewire_frontend.grammar.patience import MOST_WAITS
from pagewire_frontend.grammar.process import CheckerProcess
from pagewire_frontend.models.model_registry import ModelSpec, load_model
from pagewire_shared.errors import (
    InternalError,
    InvalidRequestError,
    OverloadedError,
    UnavailableError,
)
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from support.checkpoints.text_models import make_text_model
from support.source_tree import ROOT

FINE = Params(choice=("yes", "no"))
SLOW = Params(json={"type": "integer", "multipleOf": 99_999_999})
LARGE = Params(json={"allOf": [{"type": "string", "pattern": f".*a.{{{n}}}"} for n in range(30)]})
WAIT_SECONDS = 30


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = make_text_model(tmp_path_factory.mktemp("text"))
    return load_model(ModelSpec("tiny", str(folder)))


@dataclass
class Watch:
    """The processes that were started and what they were asked."""

    pids: list[int]
    asked: list[Params]


@pytest.fixture
def watch(monkeypatch):
    made = Watch([], [])
    start, check = CheckerProcess.__init__, CheckerProcess.check

    def watched_start(self, memory_bytes):
        start(self, memory_bytes)
        made.pids.append(self.pid)

    def watched_check(self, model, params, seconds):
        made.asked.append(params)
        return check(self, model, params, seconds)

    monkeypatch.setattr(CheckerProcess, "__init__", watched_start)
    monkeypatch.setattr(CheckerProcess, "check", watched_check)
    return made


@pytest.fixture
async def make(watch):
    made = []

    def new(**settings):
        made.append(GrammarChecker(**settings))
        return made[-1]

    yield new
    for checker in made:
        checker.close()
    for pid in watch.pids:
        await until(lambda pid=pid: not is_running(pid))


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(is_true):
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_true():
            await asyncio.sleep(0.02)


async def refusal(checker, model, params):
    with pytest.raises(InvalidRequestError) as caught:
        await checker.check(model, params)
    assert caught.value.field == "structured_outputs"
    assert caught.value.code == "invalid_grammar"
    return caught.value.message


def distinct(number):
    return Params(choice=(f"choice {number}",))


async def test_what_is_fine_passes_and_what_is_not_says_why(make, model, watch):
    checker = make()
    await checker.check(model, None)
    assert watch.pids == []
    kinds = {
        "json": {"type": "object", "properties": {"a": {"enum": ["ä", "😀"]}}},
        "json_object": True,
        "regex": "[a-c]+ü",
        "grammar": 'root ::= "a" | "ß"',
        "choice": ("x", "日本"),
    }
    for name, value in kinds.items():
        await checker.check(model, Params(**{name: value}))
    assert "Invalid type: x" in await refusal(checker, model, Params(json={"type": "x"}))
    assert "unclosed group" in await refusal(checker, model, Params(regex="(a"))
    assert "as GBNF" in await refusal(checker, model, Params(grammar="a b"))
    assert len(watch.pids) == 1


async def test_what_was_asked_before_is_known(make, model, watch, monkeypatch):
    monkeypatch.setattr(grammar_check, "NUM_REMEMBERED", 2)
    checker, bad = make(), Params(regex="(a")
    for _ in range(3):
        await checker.check(model, FINE)
        await refusal(checker, model, bad)
    assert len(watch.asked) == 2
    await checker.check(model, distinct(1))
    await refusal(checker, model, bad)
    assert len(watch.asked) == 3
    await checker.check(model, FINE)
    assert len(watch.asked) == 4


async def test_equal_questions_at_once_are_one(make, model, watch):
    checker = make()
    await asyncio.gather(*(checker.check(model, FINE) for _ in range(20)))
    assert len(watch.asked) == len(watch.pids) == 1


async def test_a_slow_one_is_refused_and_the_next_is_checked(make, model, watch):
    checker = make(num_processes=1, limit_seconds=1.0)
    message = await refusal(checker, model, SLOW)
    assert message == "structured_outputs took more than 1 s to compile"
    await checker.check(model, FINE)
    assert len(watch.pids) == 2
    await until(lambda: not is_running(watch.pids[0]))
    # It may have been the machine's fault: asked again it is tried again.
    await refusal(checker, model, SLOW)
    assert watch.asked.count(SLOW) == 2


async def test_a_slow_one_holds_up_nobody_where_there_are_two_processes(make, model):
    checker = make(num_processes=2, limit_seconds=20)
    slow = asyncio.create_task(checker.check(model, SLOW))
    for number in range(5):
        await checker.check(model, distinct(number))
    assert not slow.done()
    slow.cancel()


@pytest.mark.parametrize("params", [SLOW, LARGE], ids=["states", "conjunction"])
async def test_a_large_one_is_refused_and_the_next_is_checked(make, model, params, watch):
    checker = make(limit_seconds=WAIT_SECONDS, memory_bytes=32 * 1024**2)
    message = await refusal(checker, model, params)
    assert message == "structured_outputs needs too much memory to compile"
    assert watch.asked == [params] * grammar_check.NUM_ATTEMPTS
    await checker.check(model, FINE)


async def test_a_killed_process_is_replaced_and_those_who_waited_are_checked(make, model, watch):
    checker = make(num_processes=1, limit_seconds=1.5)
    slow = asyncio.create_task(refusal(checker, model, SLOW))
    others = [asyncio.create_task(checker.check(model, distinct(n))) for n in range(3)]
    await until(lambda: watch.asked)
    os.kill(watch.pids[0], signal.SIGKILL)
    await asyncio.gather(*others)
    # Killed once it might have been by anybody; it was asked again.
    assert "took more than" in await slow
    assert watch.asked.count(SLOW) == 2
    for number in range(3):
        assert watch.asked.count(distinct(number)) == 1


async def test_idle_processes_that_were_killed_cost_nobody_anything(
    make, model, watch, monkeypatch
):
    checker = make(num_processes=2)

    async def start_two_and_kill_them(first):
        await asyncio.gather(*(checker.check(model, distinct(first + n)) for n in range(2)))
        for pid in filter(is_running, watch.pids):
            os.kill(pid, signal.SIGKILL)

    await start_two_and_kill_them(0)
    await until(lambda: not any(map(is_running, watch.pids)))
    await start_two_and_kill_them(2)
    # Dying still: they look as if they ran.
    with monkeypatch.context() as patch:
        patch.setattr(CheckerProcess, "is_running", True)
        await checker.check(model, FINE)


async def test_one_who_leaves_leaves_the_others_their_answer(make, model, watch):
    checker = make(num_processes=1)
    first = asyncio.create_task(checker.check(model, FINE))
    second = asyncio.create_task(checker.check(model, FINE))
    await until(lambda: watch.pids)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    await checker.check(model, distinct(1))
    assert len(watch.pids) == 1


async def test_too_many_under_way_are_refused(make, model):
    checker = make(num_processes=1, max_under_way=2)
    tasks = [asyncio.create_task(checker.check(model, distinct(n), str(n))) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError, match="too many") as caught:
        await checker.check(model, distinct(2))
    assert caught.value.retry_after_ms
    same = asyncio.create_task(checker.check(model, distinct(0)))
    await asyncio.gather(*tasks, same)
    await checker.check(model, distinct(2))


async def test_models_have_their_own_tokenizers(make, model, tmp_path, watch):
    checker = make(num_processes=1)
    other = load_model(ModelSpec("other", str(make_text_model(tmp_path / "b", vocab=300))))
    for one in (model, other, model):
        await checker.check(one, FINE)
    assert len(watch.asked) == 2
    small = load_model(ModelSpec("small", str(make_text_model(tmp_path / "c", vocab=300))))
    object.__setattr__(small, "vocab_size", 200)
    assert "tokenizer cannot be used" in await refusal(checker, small, FINE)
    assert len(watch.pids) == 1


async def test_a_process_that_cannot_be_started_is_said(make, model, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(InternalError, match="no grammar checker can be started"):
        await make().check(model, FINE)


async def test_a_process_that_cannot_begin_is_no_fault_of_the_grammar(make, model, monkeypatch):
    monkeypatch.setattr(grammar_process, "MODULE", "no.such.module")
    with pytest.raises(UnavailableError, match="before they have begun"):
        await make(num_processes=1).check(model, FINE)


async def test_closing_ends_the_processes_and_what_they_do(make, model, watch):
    checker = make(num_processes=2, limit_seconds=1000)
    await checker.check(model, FINE)
    slow = asyncio.create_task(checker.check(model, SLOW))
    await until(lambda: SLOW in watch.asked)
    checker.close()
    with pytest.raises(asyncio.CancelledError):
        await slow
    for pid in watch.pids:
        await until(lambda pid=pid: not is_running(pid))


PARENT = """
import asyncio, sys
from pagewire_frontend.grammar.check import GrammarChecker
from pagewire_frontend.models.model_registry import ModelSpec, load_model
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params

async def main():
    model = load_model(ModelSpec("tiny", sys.argv[1]))
    checker = GrammarChecker(limit_seconds=1000)
    await checker.check(model, Params(regex="a"))
    print(checker._idle[0].pid, "llguidance" in sys.modules, flush=True)
    await checker.check(model, Params(json={"type": "integer", "multipleOf": 99999999}))

asyncio.run(main())
"""


async def test_it_ends_with_its_parent_whatever_it_does(tmp_path):
    """Killed with -9 in the middle of a check. The parent itself never loads the compiler."""
    folder = make_text_model(tmp_path / "text")
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(folder), stdout=subprocess.PIPE
    )
    pid, has_compiler = (await parent.stdout.readline()).split()
    assert has_compiler == b"False"
    await asyncio.sleep(0.3)
    assert is_running(int(pid))
    parent.kill()
    await parent.wait()
    await until(lambda: not is_running(int(pid)))


def test_a_frontend_starts_without_the_compiler():
    program = "import sys, pagewire_frontend.serve; print('llguidance' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
    assert (ROOT / "shared" / "pagewire_shared" / "sampling" / "grammar_source.py").is_file()


async def test_one_tenant_does_not_keep_all_others_from_their_checks(monkeypatch):
    may_end = asyncio.Event()
    began = []

    async def slow(self, key, model, params):
        began.append(params.regex)
        await may_end.wait()

    checker = GrammarChecker(num_processes=1, max_under_way=8)
    monkeypatch.setattr(GrammarChecker, "_check_now", slow)

    class Model:
        name = "m"

    def ask(tenant, text):
        params = Params(regex=text)
        return asyncio.create_task(checker.check(Model(), params, tenant))

    mine = [ask("a", f"a{number}") for number in range(8)]
    await asyncio.sleep(0)
    refused = [task for task in mine if task.done() and task.exception()]
    for _ in range(3):
        await asyncio.sleep(0)
        refused = [task for task in mine if task.done()]
    assert len(refused) == 4
    assert all(isinstance(task.exception(), OverloadedError) for task in refused)
    other = ask("b", "b0")
    may_end.set()
    await asyncio.wait_for(asyncio.gather(other, *(set(mine) - set(refused))), 10)
    # Tenants take turns: the other one did not wait for all that were before it.
    assert began.index("b0") <= 3
    checker.close()


def test_a_process_that_gets_no_processor_is_waited_for(model):
    """As on a machine that is busy: it is slow, and the grammar is not."""
    process = CheckerProcess(grammar_check.MEMORY_BYTES)
    assert process.check(model, FINE, WAIT_SECONDS) is None
    os.kill(process.pid, signal.SIGSTOP)
    goes_on = threading.Timer(1.5, os.kill, (process.pid, signal.SIGCONT))
    goes_on.start()
    assert process.check(model, Params(json={"type": "boolean"}), 0.5) is None
    goes_on.join()
    process.kill()


def test_a_process_that_never_computes_is_given_up(model):
    process = CheckerProcess(grammar_check.MEMORY_BYTES)
    assert process.check(model, FINE, WAIT_SECONDS) is None
    os.kill(process.pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        process.check(model, Params(json={"type": "null"}), 0.1)
    assert time.monotonic() - began > 0.1 * MOST_WAITS
    assert not process.is_running
