"""Checks that a client's grammar compiles, in separate processes with limits on time and memory.

Compiling has bombs that no limit of the compiler catches: an integer that is a multiple of 99999999
takes minutes, some conjunctions of patterns take 20 GB. The frontend itself never imports the
compiler.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from pagewire_frontend.grammar.process import CheckerEndedError, CheckerLostError, CheckerProcess
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.fair_queue import FairTurns
from pagewire_shared.errors import InvalidRequestError, OverloadedError, UnavailableError
from pagewire_shared.exhaustion import fault_of
from pagewire_shared.sampling.structured_outputs import FIELD, StructuredOutputsParams

_logger = logging.getLogger(__name__)

CODE: Final = "invalid_grammar"
NUM_PROCESSES: Final = 2
NUM_ATTEMPTS: Final = 2
LIMIT_SECONDS: Final = 2.0
MEMORY_BYTES: Final = 2 * 1024**3
MAX_UNDER_WAY: Final = 64
NUM_REMEMBERED: Final = 256

Result = TypeVar("Result")
_Key = tuple[str, bytes]
"""Model and grammar id."""


class GrammarChecker:
    """Compiles grammars in checker processes, started when first needed and again after each that
    ended.

    Args:
        num_processes: Most processes at once; each checks one grammar at a time.
        limit_seconds: Processor time that one check may take, as Patience counts it.
        max_under_way: Most different grammars checked or waiting, half of them for one tenant.
    """

    def __init__(
        self,
        *,
        num_processes: int = NUM_PROCESSES,
        limit_seconds: float = LIMIT_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
        max_under_way: int = MAX_UNDER_WAY,
    ) -> None:
        self._limit_seconds = limit_seconds
        self._memory_bytes = memory_bytes
        self._max_under_way = max_under_way
        self._turns = FairTurns(num_processes)
        self._threads = ThreadPoolExecutor(num_processes, thread_name_prefix="grammar-check")
        self._idle: list[CheckerProcess] = []
        self._busy: set[CheckerProcess] = set()
        self._under_way: dict[_Key, asyncio.Task[str | None]] = {}
        self._by_tenant: Counter[str | None] = Counter()
        self._known: OrderedDict[_Key, str | None] = OrderedDict()

    async def check(
        self,
        model: LoadedModel,
        params: StructuredOutputsParams | None,
        tenant: str | None = None,
    ) -> None:
        """Return if outputs of `model` can be held to `params` of `tenant`; None is no grammar.

        Raises:
            InvalidRequestError: The grammar does not compile; the code is invalid_grammar.
            OverloadedError: Too many grammars are being checked.
        """
        if params is None:
            return
        key = (model.name, params.digest)
        if key in self._known:
            self._known.move_to_end(key)
            error = self._known[key]
        else:
            # The client may leave; the check goes on, because other requests may wait for it.
            error = await asyncio.shield(self._task(key, model, params, tenant))
        if error is not None:
            raise InvalidRequestError(error, field=FIELD, code=CODE)

    def close(self) -> None:
        """End all processes."""
        for task in self._under_way.values():
            task.cancel()
        for process in (*self._idle, *self._busy):
            process.kill()
        self._idle.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _task(
        self, key: _Key, model: LoadedModel, params: StructuredOutputsParams, tenant: str | None
    ) -> "asyncio.Task[str | None]":
        task = self._under_way.get(key)
        if task is not None:
            return task
        if len(self._under_way) >= self._max_under_way:
            raise OverloadedError("too many structured_outputs are being checked")
        if self._by_tenant[tenant] >= max(1, self._max_under_way // 2):
            raise OverloadedError("too many of your structured_outputs are being checked")
        task = asyncio.create_task(self._check(key, model, params, tenant))
        self._under_way[key] = task
        self._by_tenant[tenant] += 1

        def forget(done: "asyncio.Task[str | None]") -> None:
            del self._under_way[key]
            self._by_tenant[tenant] -= 1
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]
            # No request may be left that would see the exception.
            if not done.cancelled() and done.exception() is not None:
                _logger.error("checking a grammar failed: %s", done.exception())

        task.add_done_callback(forget)
        return task

    async def _check(
        self, key: _Key, model: LoadedModel, params: StructuredOutputsParams, tenant: str | None
    ) -> str | None:
        await self._turns.take(tenant)
        try:
            return await self._check_now(key, model, params)
        finally:
            self._turns.give()

    async def _check_now(
        self, key: _Key, model: LoadedModel, params: StructuredOutputsParams
    ) -> str | None:
        """Return the compile error, or None; remember outcomes that stay the same."""
        is_lost = False
        for attempt in range(NUM_ATTEMPTS):
            # An idle process may be dying already; a new one is not.
            process = await self._pick(is_new=attempt > 0)
            try:
                error = await self._ask(process, model, params)
            except CheckerEndedError as ended:
                is_lost = isinstance(ended, CheckerLostError)
                # A process may die once for any reason; twice means that memory ran out.
                _logger.warning("the grammar checker %d ended in a check", process.pid)
                continue
            except TimeoutError:
                return f"{FIELD} took more than {self._limit_seconds:g} s to compile"
            self._remember(key, error)
            return error
        if is_lost:
            raise UnavailableError("the checkers of grammars end before they have begun")
        return f"{FIELD} needs too much memory to compile"

    async def _ask(
        self, process: CheckerProcess, model: LoadedModel, params: StructuredOutputsParams
    ) -> str | None:
        """Return the answer of `process` and make it idle; without an answer it is dead."""
        self._busy.add(process)
        try:
            error = await self._in_thread(process.check, model, params, self._limit_seconds)
        finally:
            self._busy.discard(process)
        self._idle.append(process)
        return error

    async def _pick(self, *, is_new: bool) -> CheckerProcess:
        while self._idle and not is_new:
            process = self._idle.pop()
            if process.is_running:
                return process
            # The process died outside of a check; its pipes are still open.
            process.kill()
        try:
            return await self._in_thread(CheckerProcess, self._memory_bytes)
        except OSError as error:
            raise fault_of(error, f"no grammar checker can be started: {error}") from error

    def _in_thread(self, job: Callable[..., Result], *args: object) -> "asyncio.Future[Result]":
        return asyncio.get_running_loop().run_in_executor(self._threads, job, *args)

    def _remember(self, key: _Key, error: str | None) -> None:
        self._known[key] = error
        while len(self._known) > NUM_REMEMBERED:
            self._known.popitem(last=False)
