"""Compiles grammars off the step loop, in threads that end with the process.

A thread that compiles cannot be stopped; here only a time limit exists. Frontends compile first, in
a process of their own, and refuse grammars that take long or much memory.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable

from llguidance import LLTokenizer

from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.exhaustion import fault_of
from pagewire_shared.identity.model_files import ModelFiles
from pagewire_shared.sampling.grammar_source import invalid_grammar
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_worker.grammars.compiled import CompiledGrammar, CompiledGrammars
from pagewire_worker.grammars.tokenizer import read_grammar_tokenizer

_logger = logging.getLogger(__name__)

NUM_THREADS = 2
COMPILE_SECONDS = 30.0


class GrammarCompiler:
    """Compiles for one model, into `compiled`.

    Args:
        files: Folders of the model; its tokenizer is read with the first grammar.
        vocab_size: Logits of the model.
        limit_seconds: Time limit of a grammar, with the wait for a thread.
    """

    def __init__(
        self,
        files: ModelFiles,
        vocab_size: int,
        compiled: CompiledGrammars,
        limit_seconds: float = COMPILE_SECONDS,
    ) -> None:
        self._files = files
        self._vocab_size = vocab_size
        self._compiled = compiled
        self._limit_seconds = limit_seconds
        self._tokenizer: LLTokenizer | None = None
        self._tokenizer_lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._epoch = 0

    async def compile(self, grammar_id: bytes, params: StructuredOutputsParams) -> None:
        """Return once plans may name the grammar.

        Raises:
            InvalidRequestError: The grammar cannot be compiled here; nothing is stored then.
        """
        epoch = self._epoch
        try:
            async with asyncio.timeout(self._limit_seconds):
                grammar = await self._in_thread(lambda: self._compile(params))
        except TimeoutError:
            raise invalid_grammar(
                params, f"took more than {self._limit_seconds:g} s to compile on a worker"
            ) from None
        if epoch == self._epoch:
            self._compiled.add(grammar_id, grammar)

    def clear(self) -> None:
        """Drop all grammars, also those being compiled."""
        self._epoch += 1
        self._compiled.clear()

    @property
    def tokenizer(self) -> LLTokenizer:
        """The tokenizer, read on first use. Raises InvalidRequestError."""
        with self._tokenizer_lock:
            if self._tokenizer is None:
                self._tokenizer = read_grammar_tokenizer(self._files, self._vocab_size)
            return self._tokenizer

    def _compile(self, params: StructuredOutputsParams) -> CompiledGrammar:
        return CompiledGrammar(self.tokenizer, params)

    def _in_thread(self, job: Callable[[], CompiledGrammar]) -> "asyncio.Future[CompiledGrammar]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CompiledGrammar] = loop.create_future()

        def complete(outcome: CompiledGrammar | PagewireError) -> None:
            if future.done():
                return
            if isinstance(outcome, PagewireError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        def run() -> None:
            if future.done():
                return
            outcome = _outcome(job)
            if not loop.is_closed():
                loop.call_soon_threadsafe(complete, outcome)

        self._start_threads()
        self._jobs.put(run)
        return future

    def _start_threads(self) -> None:
        while len(self._threads) < NUM_THREADS:
            name = f"grammar-{len(self._threads)}"
            # Daemons: a grammar that never ends must not keep the process.
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _work(self) -> None:
        while True:
            self._jobs.get()()


def _outcome(job: Callable[[], CompiledGrammar]) -> CompiledGrammar | PagewireError:
    """Return the result of a job or its error; never raises, because its thread must continue."""
    try:
        return job()
    except InvalidRequestError as error:
        return error
    except Exception as error:
        _logger.exception("compiling a grammar failed")
        return fault_of(error, f"compiling a grammar failed: {type(error).__name__}: {error}")
