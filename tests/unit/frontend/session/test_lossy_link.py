"""Requests with log-probabilities of the prompt over a link that loses, repeats, swaps and breaks:
whatever happens, the reader gets the truth, once and in order."""

import random
from collections.abc import Iterator

import pytest

from pagewire_frontend.scheduler.link_sessions import LinkSessions
from pagewire_frontend.session.events import Closed, Delta, Finished, PromptLogprobs
from pagewire_frontend.session.journal import ENDED, JournalEntry
from pagewire_frontend.session.session import Session
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv.arrays import pack_f32, pack_u32, unpack_u32
from pagewire_shared.sampling.params import SamplingParams
from support.checkpoints.no_text import NoText

PROMPT = [100 + i for i in range(12)]
OUTPUT: dict[int, list[int]] = {0: [7, 8, 9, 7, 5], 1: [6, 6, 6], 2: []}
MAX_ROUNDS = 200


class Scheduler:
    """Answers every submit in full; the test decides what of it arrives."""

    def __init__(self, rng: random.Random, entry: JournalEntry) -> None:
        self.rng = rng
        self.entry = entry
        self.messages: list[tuple[str, object]] = []

    def hear_each(self, messages: Iterator[pb.AttachFrontendRequest]) -> None:
        for message in messages:
            self.hear(message)

    def hear(self, message: pb.AttachFrontendRequest) -> None:
        if message.HasField("submit"):
            submit = message.submit
            has_prompt = submit.sampling.HasField("prompt_logprobs")
            assert has_prompt is not self.entry.is_prompt_complete, "only what is missing is asked"
            starts = [len(unpack_u32(choice.token_ids)) for choice in submit.emitted]
            ended = [choice.is_finished for choice in submit.emitted]
            begins = [ENDED if end else n for n, end in zip(starts, ended, strict=True)]
            self.answer(submit.handle, submit.epoch, begins, has_prompt=has_prompt)

    def answer(self, handle: int, epoch: int, begins: list[int], *, has_prompt: bool) -> None:
        if has_prompt:
            for begin, end in self.pieces(1, len(PROMPT)):
                self.messages.append(("prompt", prompt_batch(handle, epoch, begin, end)))
        for choice, begin in self.rng.sample(list(enumerate(begins)), len(begins)):
            if begin == ENDED:
                continue
            truth = OUTPUT[choice]
            for first, end in self.pieces(begin, len(truth)):
                batch = token_batch(handle, epoch, choice, first, truth[first:end])
                self.messages.append(("tokens", batch))
            finished = pb.FinishedChoice(
                handle=handle,
                choice=choice,
                epoch=epoch,
                num_tokens=len(truth),
                reason=sampling_pb2.FINISH_REASON_LENGTH,
            )
            self.messages.append(("finished", pb.FinishedChoices(choices=[finished])))

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        while begin < end:
            size = self.rng.randint(1, 5)
            yield begin, min(begin + size, end)
            begin += size

    def next(self) -> tuple[str, object] | None:
        """Return what arrives next of what was sent: some is lost, repeated or overtaken."""
        while self.messages:
            kind = self.rng.random()
            if kind < 0.1:
                self.messages.pop(0)
            elif kind < 0.2 and len(self.messages) > 1:
                return self.messages.pop(1)
            elif kind < 0.4:
                return self.messages[0]
            else:
                return self.messages.pop(0)
        return None


def prompt_batch(handle, epoch, begin, end):
    positions = range(begin, end)
    return pb.PromptLogprobBatch(
        handles=pack_u32([handle]),
        epochs=pack_u32([epoch]),
        first_positions=pack_u32([begin]),
        counts=pack_u32([len(positions)]),
        logprobs=pack_f32([-float(p) for p in positions]),
        ranks=pack_u32(positions),
    )


def token_batch(handle, epoch, choice, first, token_ids):
    return pb.TokenBatch(
        handles=pack_u32([handle]),
        choices=pack_u32([choice]),
        epochs=pack_u32([epoch]),
        first_positions=pack_u32([first]),
        counts=pack_u32([len(token_ids)]),
        token_ids=pack_u32(token_ids),
    )


def break_and_resume(carried: LinkSessions, scheduler: Scheduler) -> None:
    """Lose the stream; the scheduler knows some requests still, and may tell their prompts again
    from the start or not at all."""
    scheduler.messages.clear()
    carried.detach_all()
    asked, held = carried.introduce()
    resumed = {handle for handle in asked if scheduler.rng.random() < 0.5}
    for record in held:
        if record.handle in resumed:
            has_prompt = scheduler.rng.random() < 0.7
            begins = list(record.next_positions)
            scheduler.answer(record.handle, record.epoch, begins, has_prompt=has_prompt)
    carried.resubmit_open(asked, resumed)


@pytest.mark.parametrize("seed", range(150))
async def test_the_reader_gets_the_truth(seed):
    rng = random.Random(seed)
    params = SamplingParams(n=3, seed=1, max_tokens=9, prompt_logprobs=0)
    entry = JournalEntry(
        request_id=RequestId(b"r" * 16), model="m", prompt_token_ids=PROMPT, params=params
    )
    scheduler = Scheduler(rng, entry)
    carried = LinkSessions(scheduler.hear, scheduler.hear_each)
    session = Session(entry, NoText(), arrived_at=0.0, deadline=None)
    carried.submit(session)
    handlers = {
        "prompt": carried.on_prompt_logprobs,
        "tokens": carried.on_tokens,
        "finished": carried.on_finished,
    }
    for _ in range(MAX_ROUNDS):
        if session.is_over:
            break
        message = scheduler.next()
        if message is None or rng.random() < 0.02:
            break_and_resume(carried, scheduler)
            continue
        kind, batch = message
        was_complete = entry.is_prompt_complete
        handlers[kind](batch)
        if not was_complete and kind != "prompt":
            assert not any(choice.token_ids or choice.is_finished for choice in entry.choices)
    assert len(carried) == 0
    check([event async for event in session.events()])


def check(events):
    kinds = [type(event) for event in events]
    assert kinds == [PromptLogprobs, Delta, Delta, Finished, Finished, Finished, Closed]
    scores = events[0].logprobs
    assert [item.rank for item in scores] == list(range(1, len(PROMPT)))
    assert [item.token_id for item in scores] == PROMPT[1:]
    assert sorted(event.choice for event in events[3:6]) == [0, 1, 2]
    ids = {event.choice: event.token_ids for event in events[1:3]}
    assert ids | {2: []} == OUTPUT
