"""Streams that come again after their scheduler was lost: they wait where they stood, and are not
refused for want of room."""

import pytest
from unit.scheduler.cell import Cell
from unit.scheduler.links.test_frontend_convert import submit

from pagewire_protos.common.v1 import pooling_pb2, sampling_pb2
from pagewire_scheduler.convert.frontend import submission
from pagewire_scheduler.core.data.events import RejectedEvent
from pagewire_shared.errors import InvalidRequestError, OverloadedError


def full_cell():
    cell = Cell(max_num_waiting=2, max_num_seqs=1)
    for number in (1, 2):
        assert cell.submit(number, [1, 2, 3]) == []
    (refused,) = cell.submit(3, [1, 2, 3])
    assert isinstance(refused, RejectedEvent)
    assert isinstance(refused.error, OverloadedError)
    return cell


@pytest.mark.parametrize("fields", [{"epoch": 1}, {"emitted": ((7, 8),)}])
def test_what_has_begun_is_not_refused_for_want_of_room(fields):
    cell = full_cell()
    assert cell.submit(4, [1, 2, 3], **fields) == []
    # A newcomer still is.
    assert isinstance(cell.submit(5, [1, 2, 3])[0], RejectedEvent)


def test_what_comes_again_comes_before_newcomers():
    cell = Cell(max_num_seqs=1)
    cell.now = 100.0
    cell.submit(1, [1, 2, 3])
    # In the order in which frontends happened to write them.
    cell.submit(2, [1, 2, 3], epoch=1, age=5.0)
    cell.submit(3, [1, 2, 3], epoch=1, emitted=((7,),), age=50.0)
    cell.submit(4, [1, 2, 3], epoch=1, age=20.0)
    cell.now = 101.0
    cell.submit(5, [1, 2, 3])
    order = sorted(cell.core.requests.values(), key=lambda request: request.sequences[0].key)
    assert [request.handle for request in order] == [3, 4, 2, 1, 5]
    cell.planned()
    (running,) = cell.core.workers[cell.info.worker_id].running
    assert running.request.handle == 3


def test_the_age_is_on_the_wire():
    message = submit(beam=None, width=1)
    message.age_ms = 1500
    assert submission(message, 10.0).age == 1.5


def test_sampling_without_a_seed_is_refused():
    message = submit(beam=None, width=1)
    message.sampling.CopyFrom(sampling_pb2.SamplingParams(temperature=0.5, max_tokens=5))
    with pytest.raises(InvalidRequestError, match="needs a seed") as caught:
        submission(message, 0.0)
    assert caught.value.field == "seed"
    # An absent temperature is 1.
    message.sampling.CopyFrom(sampling_pb2.SamplingParams(max_tokens=5))
    with pytest.raises(InvalidRequestError, match="needs a seed"):
        submission(message, 0.0)


def test_what_draws_nothing_needs_no_seed():
    message = submit(beam=None, width=1)
    message.sampling.CopyFrom(sampling_pb2.SamplingParams(temperature=0, max_tokens=5))
    assert submission(message, 0.0).sampling.seed is None
    message.sampling.ClearField("temperature")
    message.pool.CopyFrom(pooling_pb2.Pooling())
    assert submission(message, 0.0).pooling is not None
