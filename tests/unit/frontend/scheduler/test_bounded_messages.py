"""What a frontend says to a scheduler fits a message, or is one request's error."""

import pytest
from unit.frontend.session.test_broken_sessions import Link

from pagewire_frontend.scheduler import convert as link_messages
from pagewire_frontend.scheduler import link_sessions
from pagewire_frontend.session.journal_records import Finding, HeldRecord, HeldResources
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.rpc.send_queue import MESSAGE_BYTES
from pagewire_shared.sampling.params import SamplingParams


def lose_and_return(link, resumed):
    link.carried.detach_all()
    asked, held = link.carried.introduce()
    link.sent.clear()
    link.carried.resubmit_open(asked, {handle for handle in asked if resumed})
    return [message.submit for message in link.sent if message.HasField("submit")], held


async def test_a_request_that_no_message_holds_fails_alone():
    link = Link()
    large = link.open(1, params=SamplingParams(seed=1, n=128, max_tokens=20_000))
    link.open(2)
    for choice in large.entry.choices:
        choice.token_ids = [7] * 17_000
    submits, _ = lose_and_return(link, resumed=False)
    assert [submit.request_id[0] for submit in submits] == [2]
    with pytest.raises(InvalidRequestError, match="bytes, where a scheduler takes 8388608"):
        large.take()
    assert len(link.carried) == 1


@pytest.mark.parametrize("resumed", [True, False])
async def test_a_hello_lists_what_fits_and_the_rest_is_submitted_again(monkeypatch, resumed):
    link = Link()
    for handle in range(1, 101):
        link.open(handle)
    monkeypatch.setattr(link_sessions, "HELD_BYTES", 60 * 44)
    submits, held = lose_and_return(link, resumed)
    assert len(held) == 60
    assert len(submits) == (40 if resumed else 100)
    assert len({submit.handle for submit in submits} | link.carried.handles.keys()) == 100


def test_the_list_of_a_hello_is_counted_generously():
    num_choices = 128
    num = link_sessions.HELD_BYTES // (link_sessions._HELD_RECORD_BYTES + 4 * num_choices)
    record = HeldRecord(RequestId(b"r" * 16), 2**32 - 1, 2**32 - 1, (2**32 - 1,) * num_choices)
    hello = link_messages.hello_message(
        frontend_id=b"f" * 16,
        highest_generation=1,
        fingerprints=[],
        held_generation=1,
        held=[record] * num,
    )
    assert hello.ByteSize() < MESSAGE_BYTES


def test_an_audit_of_many_findings_fits():
    findings = tuple(Finding("leaked_handle", "x" * 1000) for _ in range(20_000))
    reply = link_messages.audit_reply_message(1, b"f" * 16, HeldResources(1, 1, findings))
    assert reply.ByteSize() < MESSAGE_BYTES
