"""The grammars of one worker: compiled ones, requests to compile, and ones that the worker may
forget.

A worker compiles off its step loop, so a slow grammar delays only the sequences that need it.
Credits bound the number of requests under way and the bytes of their sources; further requests wait
here. The link takes the requests and sends them.
"""

from collections.abc import Collection, Iterable
from typing import Final

from pagewire_scheduler.core.data.stream_limits import StreamLimits
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

MAX_READY: Final = 64
"""Compiled grammars that a worker keeps beyond those in use: the newest may well come again."""

MAX_RELEASED: Final = 1024
"""Most grammars that one plan releases; the next plan releases further ones."""

Key = bytes
"""Names a grammar by its content."""

GrammarId = bytes
"""Names a grammar on one attach; never used again, so a late release cannot hit a newer one."""


class WorkerGrammars:
    """The compiler of one worker: compiled grammars, and requests to compile."""

    __slots__ = (
        "_asked",
        "_limits",
        "_num_asked",
        "_ready",
        "_to_ask",
        "_to_release",
        "_under_way",
    )

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._ready: dict[Key, GrammarId] = {}  # least recently used first
        self._asked: dict[Key, GrammarId] = {}
        # In the order in which they were needed; they are in `_asked`, too.
        self._to_ask: dict[Key, StructuredOutputsParams] = {}
        self._under_way: dict[GrammarId, int] = {}  # -> bytes of its source
        self._to_release: list[GrammarId] = []
        self._num_asked = 0

    @property
    def num_ready(self) -> int:
        """Compiled grammars that the worker holds."""
        return len(self._ready)

    def is_ready(self, key: Key) -> bool:
        """Return whether sequences with this grammar may run; marks the grammar as used."""
        grammar_id = self._ready.pop(key, None)
        if grammar_id is None:
            return False
        self._ready[key] = grammar_id
        return True

    def id_of(self, key: Key) -> GrammarId:
        """Return the id under which the worker holds a grammar that is ready."""
        return self._ready[key]

    def request_compile(self, key: Key, params: StructuredOutputsParams) -> None:
        """Request a grammar from the worker, once, when there is credit for it."""
        if key not in self._asked:
            self._num_asked += 1
            grammar_id = key[:8] + self._num_asked.to_bytes(8, "little")
            self._asked[key] = grammar_id
            self._to_ask[key] = params

    @property
    def is_asking(self) -> bool:
        """Return whether a grammar waits to be requested, with credit for one more."""
        return bool(self._to_ask) and len(self._under_way) < self._limits.max_grammars

    def pop_requests(
        self, in_use: Collection[Key] | None = None
    ) -> list[tuple[GrammarId, StructuredOutputsParams]]:
        """Return the grammars to request from the worker now, as far as the credit reaches.

        Grammars that are not `in_use` any more are dropped; None keeps all of them.
        """
        taken: list[tuple[GrammarId, StructuredOutputsParams]] = []
        num_bytes = sum(self._under_way.values())
        for key, params in list(self._to_ask.items()):
            if in_use is not None and key not in in_use:
                del self._asked[key], self._to_ask[key]
                continue
            size = len(params.text.encode())
            is_over = num_bytes + size > self._limits.max_grammar_bytes
            if not self.is_asking or (is_over and self._under_way):
                break
            num_bytes += size
            grammar_id = self._asked[key]
            self._under_way[grammar_id] = size
            taken.append((grammar_id, self._to_ask.pop(key)))
        return taken

    def answer(self, grammar_id: GrammarId, *, is_compiled: bool) -> Key | None:
        """Take an answer of the worker; return its grammar, or None for an unknown one."""
        if self._under_way.pop(grammar_id, None) is None:
            return None
        for key, asked in self._asked.items():
            if asked == grammar_id:
                del self._asked[key]
                if is_compiled:
                    self._ready[key] = grammar_id
                return key
        return None

    def release_unused(self, in_use: Iterable[Key]) -> None:
        """Release the oldest unused grammars beyond MAX_READY."""
        if len(self._ready) <= MAX_READY:
            return
        probe_blocks = set(in_use)
        unused = [key for key in self._ready if key not in probe_blocks]
        for key in unused[: len(self._ready) - MAX_READY]:
            self._to_release.append(self._ready.pop(key))

    def take_released(self) -> list[GrammarId]:
        """Return the grammars that the plan being sent releases."""
        taken = self._to_release[:MAX_RELEASED]
        del self._to_release[:MAX_RELEASED]
        return taken
