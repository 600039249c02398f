"""Handle of one grammar checker process: starts, asks and kills it. All calls block."""

import contextlib
import os
import selectors
import subprocess
import sys
import threading
from typing import Any

from pagewire_frontend.grammar.frames import LENGTH, pack, unpack
from pagewire_frontend.grammar.patience import Patience
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_shared.errors import InternalError
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

MODULE = "pagewire_frontend.grammar.checker_process"
LOAD_SECONDS = 60.0

_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "RUST_BACKTRACE": "0",
}
"""The address space is limited, and every thread reserves much of it and uses little. Running out
of memory is worth a line in the log; a backtrace is not."""


class CheckerEndedError(Exception):
    """The process is gone."""


class CheckerLostError(CheckerEndedError):
    """The process is gone, before it saw anything that a client sent."""


class CheckerProcess:
    """One checker process; answers one question at a time.

    Args:
        memory_bytes: Address space that it may use beyond what it starts with.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT},
            bufsize=0,
        )
        self._models: set[str] = set()
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def check(
        self, model: LoadedModel, params: StructuredOutputsParams, seconds: float
    ) -> str | None:
        """Return the error of `params`, or None; the process is killed where this raises.

        Raises:
            CheckerEndedError: The process ended before it answered.
            TimeoutError: The process has not answered after `seconds` of its processor time.
            InternalError: The tokenizer could not be loaded in time.
        """
        try:
            if model.name not in self._models:
                error = self._load(model)
                if error is not None:
                    return error
            question = {"model": model.name, "kind": params.kind, "text": params.text}
            return self._ask({"op": "check", **question, "choice": params.choice}, seconds)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End the process, whatever it does, and wait for that; again is allowed."""
        self._process.kill()
        self._process.wait()
        # A thread that waited for an answer sees the end of the pipe now and releases the lock.
        with self._lock:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _load(self, model: LoadedModel) -> str | None:
        question = {
            "op": "load",
            "model": model.name,
            "tokenizer": model.tokenizer.to_json(),
            "vocab_size": model.vocab_size,
            "eos_token_ids": list(model.eos_token_ids),
        }
        try:
            error = self._ask(question, LOAD_SECONDS)
        except CheckerEndedError as ended:
            raise CheckerLostError(*ended.args) from ended
        except TimeoutError:
            text = f"the tokenizer of {model.name} takes more than {LOAD_SECONDS:g} s to load"
            raise InternalError(text) from None
        if error is None:
            self._models.add(model.name)
        return error

    def _ask(self, question: dict[str, Any], seconds: float) -> str | None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock:
            if stdin.closed:
                raise CheckerEndedError("killed")
            try:
                patience = Patience(self.pid, seconds)
                _send(stdin.fileno(), pack(question))
                (length,) = LENGTH.unpack(_receive(stdout.fileno(), LENGTH.size, patience))
                answer = unpack(_receive(stdout.fileno(), length, patience))
            except BrokenPipeError as error:
                raise CheckerEndedError(str(error)) from error
        message: str | None = answer["error"]
        return message


def _send(pipe: int, data: bytes) -> None:
    # The checker has a thread that only reads: this ends, whatever compiles there.
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(pipe, rest) :]


def _receive(pipe: int, num_bytes: int, patience: Patience) -> bytes:
    """Return exactly `num_bytes`. Raises CheckerEndedError or TimeoutError."""
    parts: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while num_bytes:
            while not selector.select(left := patience.left()):
                if not left:
                    raise TimeoutError
            part = os.read(pipe, num_bytes)
            if not part:
                raise CheckerEndedError("it closed its output")
            parts.append(part)
            num_bytes -= len(part)
    return b"".join(parts)
