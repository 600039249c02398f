"""Frontends that say that they have started: each is given what it kept by one task at a time."""

import asyncio
import logging
from typing import Any

import pytest

from pagewire_frontend.group.peer_service import PeerService
from pagewire_frontend.http.kept_streams.recipes import RecipeStore
from pagewire_protos.frontend.v1 import peer_pb2 as pb
from pagewire_shared.errors import UnavailableError

STARTED = pb.RenewRecipesRequest(started_name="b")


class Restorer:
    """Gives for ever, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.num_begun = self.num_running = self.num_cancelled = 0
        self._error = error

    async def __call__(self, name: str) -> None:
        assert name == "b"
        self.num_begun += 1
        if self._error is not None:
            raise self._error
        self.num_running += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.num_running -= 1


def service(restorer: Restorer) -> PeerService:
    others: dict[str, Any] = dict.fromkeys(
        ("responses", "streams", "keys", "history", "exposition", "adapters")
    )
    return PeerService(recipes=RecipeStore(1000, 60.0), restore=restorer, **others)


async def test_each_peer_is_given_things_by_one_task_at_a_time() -> None:
    restorer = Restorer()
    made = service(restorer)
    calls = [asyncio.create_task(made.RenewRecipes(STARTED, None)) for _ in range(50)]
    await asyncio.sleep(0.01)
    assert (restorer.num_running, len(made._restoring)) == (1, 1)
    # The callers before are answered: theirs are processes that are gone.
    assert [call.done() for call in calls] == [True] * 49 + [False]
    # One that does not wait leaves it to go on.
    calls[-1].cancel()
    await asyncio.sleep(0.01)
    assert restorer.num_running == 1
    for task in made._restoring.values():
        task.cancel()
    await asyncio.sleep(0.01)
    assert not made._restoring


async def test_a_failure_is_logged_and_not_the_callers(caplog: pytest.LogCaptureFixture) -> None:
    made = service(Restorer(UnavailableError("it is gone again")))
    with caplog.at_level(logging.WARNING):
        await made.RenewRecipes(STARTED, None)
    assert "frontend b is not given what it kept: " in caplog.text
    assert "it is gone again" in caplog.text
    assert not made._restoring
