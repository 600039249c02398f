"""A grammar checker as its frontend sees it: start, ask, kill. Decides nothing."""

import asyncio
import os
import sys
from typing import Any

from pagewire_frontend.grammar_frames import LENGTH, pack, unpack
from pagewire_frontend.model_registry import LoadedModel
from pagewire_shared.structured_outputs import StructuredOutputsParams

MODULE = "pagewire_frontend.grammar_checker_process"
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "RUST_BACKTRACE": "0",
}
"""Its address space is limited, of which every thread reserves much and uses little. That memory
ran out is worth a line in the log, and where is not."""


class CheckerEndedError(Exception):
    """The process is gone."""


class CheckerProcess:
    """One process, asked one question at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._models: set[str] = set()

    @classmethod
    async def start(cls, memory_bytes: int) -> "CheckerProcess":
        """Start one that may use `memory_bytes` of address space. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", MODULE, str(memory_bytes)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT},
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it is not known to have ended."""
        return self._process.returncode is None

    def knows(self, model: LoadedModel) -> bool:
        """Whether the tokenizer of `model` is loaded there."""
        return model.name in self._models

    async def load(self, model: LoadedModel, tokenizer_json: str) -> str | None:
        """Give it a tokenizer; return what is wrong with it. Raises CheckerEndedError."""
        error = await self._ask(
            {
                "op": "load",
                "model": model.name,
                "tokenizer": tokenizer_json,
                "vocab_size": model.vocab_size,
                "eos_token_ids": list(model.eos_token_ids),
            }
        )
        if error is None:
            self._models.add(model.name)
        return error

    async def check(self, model: LoadedModel, params: StructuredOutputsParams) -> str | None:
        """Return what is wrong with `params`, or None. Raises CheckerEndedError."""
        question = {"op": "check", "model": model.name, "kind": params.kind, "text": params.text}
        return await self._ask({**question, "choice": params.choice})

    def kill(self) -> None:
        """End it, whatever it does; again is allowed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self.is_running:
            self._process.kill()

    async def _ask(self, question: dict[str, Any]) -> str | None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(pack(question))
            await stdin.drain()
            (length,) = LENGTH.unpack(await stdout.readexactly(LENGTH.size))
            answer = unpack(await stdout.readexactly(length))
        except (asyncio.IncompleteReadError, OSError) as error:
            raise CheckerEndedError(str(error)) from error
        message: str | None = answer["error"]
        return message
