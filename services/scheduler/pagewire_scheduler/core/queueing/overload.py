"""Overload guard: counts the load that the cell has accepted, refuses requests above its limits,
and estimates when to retry."""

from typing import Final

from pagewire_scheduler.core.data.account import Account, AccountKey, AccountSums, Cost
from pagewire_scheduler.core.data.settings import OverloadLimits
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.state.accounts import begin_counting, cost_of
from pagewire_scheduler.core.state.request import Request
from pagewire_shared.errors import InvalidRequestError, OverloadedError

OVERCOMMIT: Final = 4
"""How many times the limit of memory all requests may come to if each takes all it may. Few do: the
answers to most that do not say how long are short."""

# Beside each limit, for tenants that hold little: a quarter of it. One of them may take an eighth
# of what is left of that, so there is always something left for the next.
_SPARE_DIVISOR: Final = 4
_SHARE_OF_SPARE: Final = 8

_SMOOTHING: Final = 0.3
_MIN_RETRY_MS: Final = 1_000
_MAX_RETRY_MS: Final = 30_000


class OverloadGuard:
    """The load that the cell has accepted, by model and tenant, and the rate at which it ends.

    Attributes:
        accounts: Accounts with a request.
    """

    __slots__ = ("_cell", "_last_tick", "_models", "_num_ended", "accounts", "limits", "rate")

    def __init__(self, limits: OverloadLimits) -> None:
        self.limits = limits
        self.accounts: dict[AccountKey, Account] = {}
        self.rate = 0.0
        self._models: dict[tuple[str, bool], AccountSums] = {}
        self._cell = {False: AccountSums(), True: AccountSums()}
        self._num_ended = 0
        self._last_tick: float | None = None

    @property
    def num_bytes(self) -> int:
        """Memory charged to requests, in bytes."""
        return sum(tally.num_bytes for tally in self._cell.values())

    @property
    def num_waiting(self) -> int:
        """Waiting sequences of all models."""
        return sum(tally.num_waiting for tally in self._cell.values())

    def admit(self, submission: Submission) -> AccountKey:
        """Return the account that is charged for `submission`.

        A stream that is submitted again was admitted before: it is charged, and never refused.

        Raises:
            OverloadedError: A limit is reached, and the tenant has its share of the spare room.
            InvalidRequestError: The request alone exceeds a limit.
        """
        key = AccountKey(submission.model, submission.tenant, is_spare=False)
        if submission.has_begun:
            return key
        cost = cost_of(submission)
        limits = self._limits(key, cost)
        for field, name, new, _, most in limits:
            if new > most:
                raise InvalidRequestError(
                    f"the request alone counts {new}, where {name} up to {most}", field=field
                )
        full = next((one for one in limits if one[2] + one[3] > one[4]), None)
        if full is None:
            return key
        if self._fits_spare(key, cost):
            return key._replace(is_spare=True)
        _, name, _, held, most = full
        raise OverloadedError(
            f"{held} {name}, of at most {most}, and this tenant has its share; try again later",
            retry_after_ms=self.retry_after_ms(self.num_waiting),
        )

    def enter(self, request: Request, key: AccountKey) -> None:
        """Charge a request that was accepted."""
        account = self.accounts.get(key)
        if account is None:
            model = self._models.setdefault((key.model, key.is_spare), AccountSums())
            account = self.accounts[key] = Account(key, model, self._cell[key.is_spare])
        cost = cost_of(request.submission)
        request.account = account
        request.num_bytes, request.bytes_at_most = cost.num_bytes, cost.bytes_at_most
        account.note_request(1, cost.num_bytes, cost.bytes_at_most)
        begin_counting(request)

    def leave(self, request: Request) -> None:
        """Stop charging a request; none of its sequences waits any more."""
        self._num_ended += len(request.sequences)
        account = request.account
        assert account is not None, "a request leaves that never entered"
        account.note_request(-1, -request.num_bytes, -request.bytes_at_most)
        # Names of tenants come from clients: nothing is kept of who holds nothing.
        if not account.own.num_requests:
            del self.accounts[account.key]
        if not account.model.num_requests:
            del self._models[account.key.model, account.key.is_spare]

    def tick(self, now: float) -> None:
        """Update the rate at which sequences end, an average over some seconds."""
        if self._last_tick is None:
            self._last_tick = now
        elif now - self._last_tick >= 1.0:
            rate = self._num_ended / (now - self._last_tick)
            self.rate += _SMOOTHING * (rate - self.rate)
            self._num_ended, self._last_tick = 0, now

    def retry_after_ms(self, num_waiting: int) -> int:
        """Return the milliseconds until half of the waiting sequences will have been served."""
        if self.rate <= 0.0:
            return _MIN_RETRY_MS
        return int(min(max(500.0 * num_waiting / self.rate, _MIN_RETRY_MS), _MAX_RETRY_MS))

    def _limits(self, key: AccountKey, cost: Cost) -> list[tuple[str, str, int, int, int]]:
        """Return for each limit: the field of the request, a description, the amount asked for, the
        amount held, and the limit.
        """
        model = self._models.get((key.model, False), AccountSums())
        cell, most = self._cell[False], self.limits
        waiting = f"of {key.model!r} are waiting"
        held, taken = "bytes are held for requests", "bytes may be taken by requests"
        taken_at_most = OVERCOMMIT * most.max_request_bytes
        sequences = (cost.num_sequences, model.num_waiting, most.max_num_waiting)
        tokens = (cost.num_tokens, model.num_tokens, most.max_waiting_tokens)
        return [
            ("n", f"sequences {waiting}", *sequences),
            ("prompt", f"tokens {waiting}", *tokens),
            ("prompt", held, cost.num_bytes, cell.num_bytes, most.max_request_bytes),
            ("max_tokens", taken, cost.bytes_at_most, cell.bytes_at_most, taken_at_most),
        ]

    def _fits_spare(self, key: AccountKey, cost: Cost) -> bool:
        """Return whether the tenant may have a share of the spare room.

        Memory counts with its expected final size, so that no request outgrows the spare room.
        """
        own, spare_own = (
            account.own if (account := self.accounts.get(one)) is not None else AccountSums()
            for one in (key, key._replace(is_spare=True))
        )
        model = self._models.get((key.model, True), AccountSums())
        limits = self.limits
        num_waiting = own.num_waiting + spare_own.num_waiting + cost.num_sequences
        num_tokens = own.num_tokens + spare_own.num_tokens + cost.num_tokens
        num_bytes = own.num_bytes + spare_own.bytes_at_most + cost.bytes_at_most
        return (
            num_waiting <= _share(limits.max_num_waiting, model.num_waiting)
            and num_tokens <= _share(limits.max_waiting_tokens, model.num_tokens)
            and num_bytes <= _share(limits.max_request_bytes, self._cell[True].bytes_at_most)
        )


def _share(limit: int, num_taken: int) -> int:
    """Return the part of the spare room below `limit` that one tenant may have."""
    spare = max(limit // _SPARE_DIVISOR, _SHARE_OF_SPARE)
    return max(0, spare - num_taken) // _SHARE_OF_SPARE
