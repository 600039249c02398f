"""Takes one server through the cases: started, warmed up, asked again and again, stopped."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from compare.cases import CASES, LOAD, START, Case
from compare.foreign_load import foreign_share, read_clock
from compare.peers.protocol import NotStartedError, Peer, Running, Setup
from compare.process_tree import MemoryPeak
from compare.results import Run, ServerResult
from compare.work import Ids, Request, RunFailedError

WARM_UP_TOKENS = 16
MB = 1e6


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured of every server.

    Attributes:
        setup: What is the same for all servers.
        letters: Cases.
        repeats: Of each.
        vocab: Size of the model's vocabulary.
        seed: Of the prompts.
        batch_seconds: How long a batch of requests may take.
        say: Takes a line about what is under way.
    """

    setup: Setup
    letters: Sequence[str]
    repeats: int
    vocab: int
    seed: int
    batch_seconds: float
    say: Callable[[str], None]

    def ids(self, letter: str, repeat: int | str) -> Ids:
        """Return the prompts of one repeat of a case: the same for all servers."""
        return Ids(self.vocab, random.Random(f"{self.seed} {letter} {repeat}"))

    @property
    def cases(self) -> list[Case]:
        """Those that are batches of requests."""
        return [case for case in CASES if case.letter in self.letters]


def measure(peer: Peer, plan: Plan) -> ServerResult:
    """Return what came of a server; failures are in it, never raised."""
    result = ServerResult(peer.label, peer.settings(plan.setup))
    try:
        if plan.cases:
            with _running(peer, plan) as server:
                for case in plan.cases:
                    _measure_case(server, case, plan, result)
        if START in plan.letters:
            _measure_starts(peer, plan, result)
    except NotStartedError as error:
        _fail(result, "" if not result.runs else START, error, plan)
    return result


@contextmanager
def _running(peer: Peer, plan: Plan) -> Iterator[Running]:
    server = peer.start(plan.setup)
    try:
        yield server
    finally:
        server.stop()


def _measure_case(server: Running, case: Case, plan: Plan, result: ServerResult) -> None:
    try:
        _warm_up(server, case, plan)
        for repeat in range(plan.repeats):
            batches = case.batches(plan.ids(case.letter, repeat))
            before = read_clock(server.pid)
            results = [server.complete(batch, plan.batch_seconds) for batch in batches]
            share = foreign_share(before, read_clock(server.pid))
            _add(result, case.letter, Run(case.figures(results), share), plan)
    except RunFailedError as error:
        _fail(result, case.letter, error, plan)


def _warm_up(server: Running, case: Case, plan: Plan) -> None:
    """Send one request of the case's shape."""
    first = case.batches(plan.ids(case.letter, "warm-up"))[0][0]
    one = Request(first.prompt, min(first.max_tokens, WARM_UP_TOKENS))
    server.complete([one], plan.batch_seconds)


def _measure_starts(peer: Peer, plan: Plan, result: ServerResult) -> None:
    """Time starts, then sample memory over one more: sampling takes time from what it watches."""
    try:
        for repeat in range(plan.repeats):
            before, began = read_clock(None), time.perf_counter()
            with _running(peer, plan) as server:
                first = server.complete(_first_request(plan, repeat), plan.batch_seconds)
                share = foreign_share(before, read_clock(server.pid))
            figures = {"start_seconds": first[0].arrivals[0] - began}
            _add(result, START, Run(figures, share), plan)
        _measure_memory(peer, plan, result)
    except RunFailedError as error:
        _fail(result, START, error, plan)


def _measure_memory(peer: Peer, plan: Plan, result: ServerResult) -> None:
    before = read_clock(None)
    with MemoryPeak() as peak, _running(peer, plan) as server:
        server.complete(_first_request(plan, "memory"), plan.batch_seconds)
        figures = {"first_token_mb": peak.bytes / MB}
        for batch in LOAD.batches(plan.ids(START, "load")):
            server.complete(batch, plan.batch_seconds)
        figures["loaded_mb"] = peak.bytes / MB
        share = foreign_share(before, read_clock(server.pid))
    _add(result, START, Run(figures, share), plan)


def _first_request(plan: Plan, repeat: int | str) -> list[Request]:
    return plan.ids(START, repeat).requests(1, 32, 1)


def _add(result: ServerResult, letter: str, run: Run, plan: Plan) -> None:
    result.runs.setdefault(letter, []).append(run)
    told = ", ".join(f"{name} {value:.4g}" for name, value in run.figures.items())
    plan.say(f"{result.label}, case {letter}: {told}, foreign CPU {run.foreign_share:.1%}")


def _fail(result: ServerResult, letter: str, error: Exception, plan: Plan) -> None:
    result.failures[letter] = str(error)
    plan.say(f"{result.label}{', case ' if letter else ''}{letter} failed: {error}")
