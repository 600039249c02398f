"""Small parts: moves, free list, liveness, generation."""

import itertools
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.blocks.free_list import FreeList
from pagewire_scheduler.core.data.state_machine import (
    FINISHED,
    MOVES,
    IllegalMoveError,
    State,
    require_move,
)
from pagewire_scheduler.core.queueing.deadlines import Deadlines
from pagewire_scheduler.peers.liveness import ProgressWatch
from pagewire_scheduler.peers.peers import check_worker
from pagewire_shared.errors import PeerRefusedError
from pagewire_shared.identity.ids import RequestId


def test_every_move_outside_the_table_raises() -> None:
    for source, target in itertools.product(State, State):
        if target in MOVES[source]:
            require_move(source, target)
        else:
            with pytest.raises(IllegalMoveError):
                require_move(source, target)
    assert all(not MOVES[state] for state in FINISHED)


@given(st.lists(st.tuples(st.sampled_from(["pop", "head", "tail", "remove"]), st.integers(0, 7))))
def test_the_free_list_is_a_list(operations: list[tuple[str, int]]) -> None:
    free, model = FreeList(8), list(range(8))
    for operation, block in operations:
        if operation == "pop" and model:
            assert free.pop_head() == model.pop(0)
        elif operation == "remove" and block in model:
            free.remove(block)
            model.remove(block)
        elif operation == "head" and block not in model:
            free.push_head(block)
            model.insert(0, block)
        elif operation == "tail" and block not in model:
            free.push_tail(block)
            model.append(block)
        assert list(free) == model
        assert len(free) == len(model)


def test_a_worker_is_stuck_only_while_it_has_work() -> None:
    watch = ProgressWatch(0.0)
    assert not watch.is_stuck(100.0)
    watch.start_work(100.0)
    assert not watch.is_stuck(101.9)
    assert watch.is_stuck(102.1)
    watch.forgive(5.0)
    assert not watch.is_stuck(102.1)


def test_a_slow_worker_is_given_ten_times_its_pace() -> None:
    watch = ProgressWatch(0.0)
    watch.start_work(0.0)
    for counter in range(1, 5):
        watch.advance(counter * 1.0, counter, has_work=True)
    assert not watch.is_stuck(13.9)
    watch.advance(13.9, 4, has_work=True)  # the counter did not move
    assert watch.is_stuck(14.1)


@pytest.mark.parametrize(
    "name",
    ["model_fingerprint", "tokenizer_fingerprint", "vocab_size", "block_size", "max_model_len"],
)
def test_workers_of_one_model_must_agree(name: str) -> None:
    info = worker_info(1)
    value = getattr(info.model, name)
    other = value[::-1] + b"x" if isinstance(value, bytes) else value + 1
    stranger = replace(info, model=replace(info.model, **{name: other}))
    check_worker(info, [info.model], [])
    with pytest.raises(PeerRefusedError, match=name):
        check_worker(stranger, [info.model], [])
    check_worker(stranger, [replace(info.model, name="another")], [])


def test_fingerprints_of_two_forms_are_not_compared() -> None:
    info = worker_info(1)
    fingerprint = info.model.model_fingerprint[::-1] + b"x"
    newer = replace(info.model, model_fingerprint=fingerprint, fingerprint_version=2)
    check_worker(replace(info, model=newer), [info.model], [])
    with pytest.raises(PeerRefusedError, match="vocab_size"):
        check_worker(replace(info, model=replace(newer, vocab_size=1)), [info.model], [])


def test_a_request_that_has_ended_is_not_kept_until_its_deadline() -> None:
    request: Any = SimpleNamespace(
        request_id=RequestId(b"r" * 16), is_finished=False, submission=SimpleNamespace(deadline=9.0)
    )
    requests: Any = {request.request_id: request}
    deadlines = Deadlines(requests)
    deadlines.add(request)
    assert deadlines.pop_expired(8.0) == []
    num_references = sys.getrefcount(request)
    del requests[request.request_id]
    assert sys.getrefcount(request) == num_references - 1
    assert deadlines.pop_expired(9.0) == []
    requests[request.request_id] = request
    deadlines.add(request)
    assert deadlines.pop_expired(9.0) == [request]
