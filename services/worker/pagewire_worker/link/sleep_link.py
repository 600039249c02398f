"""The part of an attach that is about the sleep of its worker."""

from collections.abc import Callable
from dataclasses import dataclass

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import InvalidRequestError, WireError
from pagewire_shared.sleep.convert import sleep_to_message, tags_from_message
from pagewire_shared.sleep.state import LEVELS, MemoryTag, SleepOrder, WorkerSleep


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepLink:
    """The sleep of one worker, for its attaches.

    Attributes:
        can_sleep: Whether it takes orders to sleep; else it sleeps only while it loads weights.
        after_seconds: Time without work after which it wants to sleep; 0 for never.
        sleep: Returns where it is; None while it is awake.
        on_sleep: Called with an order to sleep, at most once in the life of a link.
        on_wake: Called with the parts to make anew.
    """

    can_sleep: bool
    after_seconds: float
    sleep: Callable[[], WorkerSleep | None]
    on_sleep: Callable[[SleepOrder], None]
    on_wake: Callable[[frozenset[MemoryTag]], None]

    def introduce(self, hello: wire.WorkerHello) -> None:
        """Add the sleep to a hello."""
        hello.can_sleep = self.can_sleep
        hello.sleep_after_ms = int(self.after_seconds * 1000) if self.can_sleep else 0
        sleep = self.sleep()
        if sleep is not None:
            hello.sleep.CopyFrom(sleep_to_message(sleep))

    def take(self, message: wire.AttachWorkerResponse) -> None:
        """Take an order. Raises WireError for one that a worker in this state cannot follow."""
        is_asleep = self.sleep() is not None
        if message.HasField("sleep"):
            order = message.sleep
            if is_asleep or order.level not in LEVELS:
                raise WireError(f"an order to sleep at level {order.level} makes no sense here")
            found = SleepOrder(level=order.level, wakes_on_request=order.wakes_on_request)
            self.on_sleep(found)
        elif is_asleep:
            try:
                self.on_wake(tags_from_message(message.wake.tags))
            except InvalidRequestError as error:
                raise WireError(error.message, field="tags") from error
