"""Calls functions in all ranks of a worker, from the event loop."""

import asyncio
import queue
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pagewire_shared.errors import InternalError, PagewireError, UnavailableError
from pagewire_worker.parallel.rank_group import RankGroup
from pagewire_worker.parallel.replies import encoded_result
from pagewire_worker.runner.model_thread import ModelThread

MARGIN_SECONDS: Final = 10.0
"""Time that a call waits for a step under way, beyond its own."""
CALL_SECONDS: Final = 60.0


class RankCalls:
    """Runs functions between the steps of a worker, in the model thread of each rank.

    Args:
        group: The other ranks; None for a worker of one rank.
        functions: Of rank 0; the others have functions of the same names.
    """

    def __init__(
        self,
        thread: ModelThread,
        group: RankGroup | None,
        functions: Mapping[str, Callable[..., Any]],
    ) -> None:
        self._thread = thread
        self._group = group
        self._functions = functions
        if group is not None:
            group.functions = {**group.functions, **functions}
            group.post = thread.post

    @property
    def num_ranks(self) -> int:
        """The number of ranks."""
        return 1 if self._group is None else self._group.collectives.topology.size

    async def call(
        self,
        method: str,
        *,
        seconds: float = CALL_SECONDS,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        unique_reply_rank: int | None = None,
    ) -> list[Any]:
        """Return the results by rank, or that of one rank alone.

        A call that has not begun in time does not begin any more.

        Raises:
            InternalError: The function raised in a rank, which is named.
            RankLostError: A rank took longer than `seconds`.
            UnavailableError: The model thread did not get to it, or too many jobs wait for it.
        """
        try:
            if self._group is None:
                answer: Awaitable[list[Any]] = self._thread.submit(
                    partial(self._call_here, method, args, kwargs or {})
                )
            else:
                answer = asyncio.wrap_future(
                    self._group.collective_rpc(
                        method, seconds, args, kwargs, unique_reply_rank, non_block=True
                    )
                )
        except queue.Full:
            raise UnavailableError(
                f"too many jobs wait for the model thread before {method}"
            ) from None
        try:
            return await asyncio.wait_for(answer, seconds + MARGIN_SECONDS)
        except TimeoutError:
            raise UnavailableError(
                f"the model thread does not get to {method} within {seconds + MARGIN_SECONDS:g} s:"
                " pagewire admin stacks shows where it is"
            ) from None

    def close(self) -> None:
        """Leave the group, which may outlive the replica that the functions belong to."""
        if self._group is not None:
            own = self._functions
            self._group.functions = {
                name: function
                for name, function in self._group.functions.items()
                if name not in own
            }

    def _call_here(self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        try:
            result = self._functions[method](*args, **kwargs)
            encoded_result(result)
        except PagewireError:
            raise
        except Exception as error:
            raise InternalError(f"rank 0: {method}: {type(error).__name__}: {error}") from error
        return [result]
