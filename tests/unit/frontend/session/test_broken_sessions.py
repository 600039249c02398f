"""One session that meets an error of this code: it fails, and the others of its batch go on."""

import pytest

from pagewire_frontend.scheduler.link_sessions import LinkSessions
from pagewire_frontend.session.events import Closed, Delta
from pagewire_frontend.session.journal import JournalEntry
from pagewire_frontend.session.session import Session
from pagewire_protos.common.v1 import sampling_pb2, timeline_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.errors import InternalError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv.arrays import pack_f32, pack_u32
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from support.checkpoints.no_text import NoText

HANDLES = (1, 2, 3)
BROKEN = 2


class Link:
    """What was sent over a stream that writes at once."""

    def __init__(self):
        self.sent = []
        self.carried = LinkSessions(self.hear, self.hear)
        self.sessions = {}

    def hear(self, reported):
        self.sent.extend([reported] if isinstance(reported, pb.AttachFrontendRequest) else reported)
        return True

    def open(self, handle, **fields):
        entry = JournalEntry(
            request_id=RequestId(bytes([handle]) * 16),
            model="m",
            prompt_token_ids=[1, 2, 3],
            params=fields.pop("params", SamplingParams(seed=1, max_tokens=2)),
            **fields,
        )
        session = self.sessions[handle] = Session(entry, NoText(), arrived_at=0.0, deadline=None)
        self.carried.submit(session)
        return session

    def check(self):
        """The broken one failed, and the scheduler was told; the others are as they were."""
        assert self.sessions[BROKEN].is_over
        assert [m.abort.handle for m in self.sent if m.HasField("abort")] == [BROKEN]
        assert set(self.carried.handles) <= {*HANDLES} - {BROKEN}
        assert self.sessions[BROKEN].carrier is None


def break_down(*args, **kwargs):
    raise ZeroDivisionError("a fault of one session")


def tokens(first):
    every = [0] * len(HANDLES)
    return pb.TokenBatch(
        handles=pack_u32(HANDLES),
        choices=pack_u32(every),
        epochs=pack_u32(every),
        first_positions=pack_u32([first] * len(HANDLES)),
        counts=pack_u32([1] * len(HANDLES)),
        token_ids=pack_u32([7] * len(HANDLES)),
    )


def ends(num_tokens):
    reason = sampling_pb2.FINISH_REASON_LENGTH
    return pb.FinishedChoices(
        choices=[
            pb.FinishedChoice(handle=handle, num_tokens=num_tokens, reason=reason)
            for handle in HANDLES
        ]
    )


async def test_tokens():
    link = Link()
    for handle in HANDLES:
        link.open(handle)
    # The reader is the innermost of what a token meets.
    link.sessions[BROKEN].listen(lambda: None, break_down)
    link.carried.on_tokens(tokens(0))
    link.check()
    with pytest.raises(InternalError, match="internal error"):
        link.sessions[BROKEN].take()
    link.carried.on_tokens(tokens(1))
    link.carried.on_finished(ends(2))
    for handle in {*HANDLES} - {BROKEN}:
        events = link.sessions[handle].take()
        assert isinstance(events[0], Delta)
        assert events[0].token_ids == [7, 7]
        assert isinstance(events[-1], Closed)


async def test_an_error_that_breaks_its_own_report():
    link = Link()
    for handle in HANDLES:
        link.open(handle)
    link.sessions[BROKEN].listen(break_down)
    link.carried.on_tokens(tokens(0))
    link.check()
    assert [link.sessions[handle].entry.choices[0].next_position for handle in (1, 3)] == [1, 1]


async def test_ends(monkeypatch):
    link = Link()
    for handle in HANDLES:
        link.open(handle)
    link.carried.on_tokens(tokens(0))
    link.carried.on_tokens(tokens(1))
    link.sessions[BROKEN].take()
    monkeypatch.setattr(link.sessions[BROKEN], "on_finished", break_down)
    link.carried.on_finished(ends(2))
    link.check()
    assert all(link.sessions[handle].is_over for handle in HANDLES)


async def test_timelines(monkeypatch):
    link = Link()
    for handle in HANDLES:
        link.open(handle)
    monkeypatch.setattr(link.sessions[BROKEN].meter, "note_timeline", break_down)
    timeline = timeline_pb2.ChoiceTimeline()
    link.carried.on_timelines(
        pb.TimelineBatch(
            timelines=[pb.HandleTimeline(handle=handle, timeline=timeline) for handle in HANDLES]
        )
    )
    link.check()


async def test_vectors(monkeypatch):
    link = Link()
    for handle in HANDLES:
        link.open(handle, pooling=PoolingParams(pooling="last"))
    monkeypatch.setattr(link.sessions[BROKEN], "on_vector", break_down)
    every = [0] * len(HANDLES)
    link.carried.on_vectors(
        pb.VectorBatch(
            handles=pack_u32(HANDLES),
            epochs=pack_u32(every),
            num_cached_tokens=pack_u32(every),
            vectors=pack_f32([1.0] * len(HANDLES)),
        )
    )
    link.check()
    assert link.sessions[1].entry.vector == link.sessions[3].entry.vector == pack_f32([1.0])


async def test_log_probabilities_of_prompts(monkeypatch):
    link = Link()
    for handle in HANDLES:
        link.open(handle, params=SamplingParams(seed=1, max_tokens=2, prompt_logprobs=0))
    monkeypatch.setattr(link.sessions[BROKEN], "on_prompt_logprobs", break_down)
    num = len(HANDLES)
    link.carried.on_prompt_logprobs(
        pb.PromptLogprobBatch(
            handles=pack_u32(HANDLES),
            epochs=pack_u32([0] * num),
            first_positions=pack_u32([1] * num),
            counts=pack_u32([2] * num),
            logprobs=pack_f32([-1.0] * 2 * num),
            ranks=pack_u32([1] * 2 * num),
        )
    )
    link.check()
    assert link.sessions[1].entry.is_prompt_complete


async def test_what_is_submitted_again(monkeypatch):
    link = Link()
    for handle in HANDLES:
        link.open(handle)
    monkeypatch.setattr(link.sessions[BROKEN], "end_complete_choices", break_down)
    link.carried.detach_all()
    asked, _ = link.carried.introduce()
    link.sent.clear()
    link.carried.resubmit_open(asked, set())
    submits = [message.submit for message in link.sent if message.HasField("submit")]
    assert [(submit.request_id[0], submit.epoch) for submit in submits] == [(1, 1), (3, 1)]
    with pytest.raises(InternalError, match="internal error"):
        link.sessions[BROKEN].take()
