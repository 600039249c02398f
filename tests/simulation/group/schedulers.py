"""The model of a scheduler, as far as frontends that die see it: requests that it holds for a lease
when their frontend is gone, and tokens that come one by one, in any order of the choices."""

import asyncio
import contextvars
import hashlib
import random
from dataclasses import dataclass, field
from typing import Any

from pagewire_shared.errors import InvalidRequestError

LEASE_SECONDS = 5.0
STEP_SECONDS = 0.02
NOTICE_SECONDS = (0.0, 0.4)
"""Time until the loss of a frontend is noticed."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def letter(seed: int, choice: int, position: int) -> str:
    """Return the text of a token: a formula, as sampling is."""
    said = f"{seed} {choice} {position}".encode()
    return LETTERS[hashlib.blake2b(said, digest_size=1).digest()[0] % len(LETTERS)]


@dataclass(eq=False)
class HeldRequest:
    """A request, and how many tokens of each choice there are."""

    request_id: bytes
    seed: int
    num_tokens: int
    owner: Any
    num_cached: int
    asked_seed: int
    counts: list[int]
    is_orphan: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_ended(self) -> bool:
        return all(count == self.num_tokens for count in self.counts)

    def grow(self, draw: random.Random) -> None:
        """Let some choices have some more tokens."""
        for choice, count in enumerate(self.counts):
            self.counts[choice] = min(self.num_tokens, count + draw.choice([0, 1, 1, 3]))
        self.changed.set()
        self.changed = asyncio.Event()


class ModelScheduler:
    """All schedulers of the group as one.

    Attributes:
        is_exact: Whether another run gives the same bits.
    """

    def __init__(self, draw: random.Random, *, is_exact: bool) -> None:
        self.is_exact = is_exact
        self.held: dict[bytes, HeldRequest] = {}
        self._draw = draw
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(
        self,
        owner: Any,
        request_id: bytes | None,
        seed: int,
        *,
        must_be_held: bool,
        num_tokens: int,
        num_choices: int,
    ) -> HeldRequest:
        """Return a request, held or new. Raises InvalidRequestError as the real one does."""
        if must_be_held:
            return self._handed_over(owner, request_id or b"", seed)
        # Bits that differ from run to run differ by the seed here.
        real_seed = seed if self.is_exact else self._draw.getrandbits(32)
        request = HeldRequest(
            request_id or self._draw.randbytes(16),
            real_seed,
            num_tokens,
            owner,
            self._draw.randrange(100),
            seed,
            [0] * num_choices,
        )
        assert request.request_id not in self.held, "one id for two requests"
        self.held[request.request_id] = request
        self._start(self._run(request))
        return request

    def _handed_over(self, owner: Any, request_id: bytes, seed: int) -> HeldRequest:
        request = self.held.get(request_id)
        if request is None:
            raise InvalidRequestError("no scheduler holds it", field="must_be_held")
        if not request.is_orphan:
            raise InvalidRequestError("it is another frontend's", field="request_id")
        if request.asked_seed != seed:
            raise InvalidRequestError("it is another request", field="seed")
        request.owner, request.is_orphan = owner, False
        return request

    def close(self, request: HeldRequest, owner: Any) -> None:
        """Forget a request that its frontend has closed."""
        if request.owner is owner and not owner.is_dead:
            self.held.pop(request.request_id, None)

    def lose(self, owner: Any) -> None:
        """A frontend is gone: what it had is kept for the lease."""
        for request in list(self.held.values()):
            if request.owner is owner:
                self._start(self._orphan(request, owner))

    def _start(self, work: Any) -> None:
        # It goes on when the process that asked is dead.
        task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _orphan(self, request: HeldRequest, owner: Any) -> None:
        await asyncio.sleep(self._draw.uniform(*NOTICE_SECONDS))
        request.is_orphan = True
        await asyncio.sleep(LEASE_SECONDS)
        if request.is_orphan and request.owner is owner:
            self.held.pop(request.request_id, None)

    async def _run(self, request: HeldRequest) -> None:
        while not request.is_ended and self.held.get(request.request_id) is request:
            await asyncio.sleep(STEP_SECONDS * self._draw.uniform(0.5, 2.0))
            request.grow(self._draw)
