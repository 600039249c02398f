"""Runs calls that may block for ever, each in a thread, with a deadline.

A call that is past its deadline goes on in its thread: it cannot be stopped. The number of calls
is bounded, and further ones fail at once. The threads are daemons, so that the process can end
beside them.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from pagewire_shared.errors import DeadlineError, UnavailableError

Result = TypeVar("Result")

MAX_CALLS: Final = 16
"""Three puts, and four loads that read ahead and ask, have fewer."""


class BlockingCalls:
    """Threads for the calls of one client.

    Args:
        what: Named in errors, such as "the Mooncake store".
    """

    def __init__(self, what: str, max_calls: int = MAX_CALLS) -> None:
        self._what = what
        self._max_calls = max_calls
        self._turns = threading.Semaphore(max_calls)

    def begin(self, call: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Begin a call; its future has the result. To cancel that does not stop the call.

        Raises:
            UnavailableError: Too many earlier calls have not ended.
        """
        if not self._turns.acquire(blocking=False):
            raise UnavailableError(f"{self._what} is stuck: {self._max_calls} calls do not end")
        outcome: Future[Result] = Future()
        outcome.set_running_or_notify_cancel()

        def run() -> None:
            try:
                outcome.set_result(call())
            except Exception as error:  # noqa: BLE001 - raised where the result is read
                outcome.set_exception(error)
            finally:
                self._turns.release()

        threading.Thread(target=run, daemon=True, name="kv-connector").start()
        future = asyncio.wrap_future(outcome)
        future.add_done_callback(_read)
        return future

    async def run(self, call: Callable[[], Result], seconds: float) -> Result:
        """Return the result of a call.

        Raises:
            DeadlineError: It takes longer than `seconds`.
            UnavailableError: Too many earlier calls have not ended.
        """
        future = self.begin(call)
        done, _ = await asyncio.wait((future,), timeout=max(0.0, seconds))
        if not done:
            raise DeadlineError(f"{self._what} did not answer within {seconds:.3g} s")
        return future.result()


def _read(future: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of a call whose result is perhaps not waited for any more."""
    if not future.cancelled():
        future.exception()
