"""Answers operators for a worker that is awake: its profiler, its extension and its ranks."""

from collections.abc import Callable
from typing import Any, Final

from pagewire_shared.errors import InternalError, InvalidRequestError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.extension.worker_extension import RankFacts, WorkerExtension, read_arguments
from pagewire_worker.inspection.profiler import Profiler
from pagewire_worker.inspection.rank_calls import RankCalls
from pagewire_worker.inspection.rank_profile import RankProfile
from pagewire_worker.inspection.step_clock import StepClock
from pagewire_worker.loading.loader import Replica
from pagewire_worker.parallel.rank_group import RankGroup
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.runner.step_phases import NO_PHASES

OWN_KERNELS: Final = "fused"
"""Beginning of the kernel sets that compute without torch."""
CALL_EXTENSION: Final = "call_extension"
"""Function of every rank that has an extension."""


class WorkerInspection:
    """Answers for one replica. Raises StartupError for an extension that cannot be made.

    Attributes:
        group: The other ranks; None for a worker of one rank.
    """

    def __init__(self, config: WorkerConfig, replica: Replica, thread: ModelThread) -> None:
        self.group: RankGroup | None = replica.group
        self._extension = extension_of(config, replica.facts)
        runner = replica.model_runner

        def follow(clock: StepClock | None) -> None:
            runner.phases = NO_PHASES if clock is None else clock

        own = RankProfile(
            name=process_name(replica.info.worker_id.hex(), 0),
            follow=follow,
            layers=replica.layers,
            device=replica.facts.device,
            uses_torch=not runner.backend.kernel_set.startswith(OWN_KERNELS),
        )
        functions: dict[str, Callable[..., Any]] = dict(own.functions)
        if self._extension is not None:
            functions[CALL_EXTENSION] = self._extension.call
        self._calls = RankCalls(thread, replica.group, functions)
        self.profiler = Profiler(self._calls, own)

    def close(self) -> None:
        """Let go of the replica."""
        self.profiler.close()
        self._calls.close()

    async def call(
        self,
        method: str,
        args_json: str,
        kwargs_json: str,
        *,
        seconds: float,
        unique_reply_rank: int | None,
    ) -> list[Any]:
        """Call a method of the extension, and return the results by rank.

        Raises:
            InvalidRequestError: There is no extension, no such method or rank, or no arguments.
            InternalError: The method raised in a rank.
            RankLostError: A rank took longer than `seconds`.
        """
        if self._extension is None:
            raise InvalidRequestError(
                "method: it was started without --worker-extension-cls, so nothing can be called",
                field="method",
            )
        self._extension.check(method)
        ranks = self._calls.num_ranks
        if unique_reply_rank is not None and not 0 <= unique_reply_rank < ranks:
            raise InvalidRequestError(
                f"unique_reply_rank must be less than {ranks}", field="unique_reply_rank"
            )
        args, kwargs = read_arguments(args_json, kwargs_json)
        try:
            return await self._calls.call(
                CALL_EXTENSION,
                seconds=seconds,
                args=(method, args, kwargs),
                unique_reply_rank=unique_reply_rank,
            )
        except InternalError as error:
            error.message = error.message.replace(CALL_EXTENSION, method, 1)
            raise


def extension_of(config: WorkerConfig, facts: RankFacts) -> WorkerExtension | None:
    """Return the extension of a rank, if there is one. Raises StartupError."""
    name = config.worker_extension_cls
    return WorkerExtension(name, facts) if name else None


def process_name(worker: str, rank: int) -> str:
    """Return what a trace calls a rank."""
    return f"worker {worker[:8]} rank {rank}" if worker else f"rank {rank}"
