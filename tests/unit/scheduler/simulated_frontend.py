"""A simulated frontend: a journal that holds every event against what must come."""

from collections import deque
from dataclasses import dataclass, field, replace

from unit.scheduler.simulated_worker import extend, root, sample

from pagewire_scheduler.core.events import Event, FinishedEvent, RejectedEvent, TokensEvent
from pagewire_scheduler.core.request import Submission
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.worker_state import ModelInfo, WorkerInfo


def model_info(*, block_size: int = 4, max_model_len: int = 64, vocab_size: int = 40) -> ModelInfo:
    return ModelInfo(
        name="tiny",
        model_fingerprint=b"m" * 32,
        tokenizer_fingerprint=b"t" * 32,
        max_model_len=max_model_len,
        vocab_size=vocab_size,
        block_size=block_size,
    )


def worker_info(number: int, **changes: object) -> WorkerInfo:
    info = WorkerInfo(
        worker_id=bytes([number % 256]) * 16,
        incarnation=number,
        model=model_info(),
        layout_fingerprint=b"l" * 16,
        dtype="float32",
        num_blocks=24,
        max_num_seqs=6,
        max_num_batched_tokens=24,
        steps_in_flight=2,
    )
    return replace(info, **changes)  # type: ignore[arg-type]


def expected_output(
    submission: Submission, choice: int, model: ModelInfo
) -> tuple[list[int], State]:
    """What a sequence must produce, computed without any scheduler."""
    digest = root(submission.salt)
    for token in submission.prompt_token_ids:
        digest = extend(digest, token)
    sampling, tokens = submission.sampling, []
    limit = model.max_model_len - len(submission.prompt_token_ids)
    limit = min(limit, sampling.max_tokens or limit)
    while len(tokens) < limit:
        token = sample(digest, choice, model.vocab_size)
        tokens.append(token)
        digest = extend(digest, token)
        is_stop = token in sampling.stop_token_ids
        is_eos = token in submission.eos_token_ids and not sampling.ignore_eos
        if (is_stop or is_eos) and len(tokens) > sampling.min_tokens:
            return tokens, State.FINISHED_STOPPED
    return tokens, State.FINISHED_LENGTH


@dataclass
class Stream:
    """One request as its frontend journals it."""

    submission: Submission
    tokens: list[list[int]]
    ends: list[State | None]

    @property
    def is_open(self) -> bool:
        return None in self.ends


@dataclass
class SimulatedFrontend:
    """A journal, and a stream that loses undelivered messages when it breaks."""

    frontend_id: bytes
    model: ModelInfo
    streams: dict[int, Stream] = field(default_factory=dict)
    inbox: deque[Event] = field(default_factory=deque)
    is_attached: bool = False
    held_generation: int | None = None
    next_handle: int = 1
    num_finished: int = 0
    num_refused: int = 0
    is_failing_allowed: bool = False

    def receive(self) -> None:
        """Take the oldest event and hold it against the journal and the truth."""
        event = self.inbox.popleft()
        stream = self.streams.get(event.handle)
        if stream is None or event.epoch != stream.submission.epoch:
            return
        if isinstance(event, RejectedEvent):
            self.num_refused += 1
            del self.streams[event.handle]
            return
        if stream.ends[event.choice] is not None:
            return  # crossed our abort
        held = stream.tokens[event.choice]
        if isinstance(event, TokensEvent):
            assert event.first_position == len(held), "a gap or a duplicate"
            held.extend(event.token_ids)
            return
        assert event.num_tokens == len(held), "an end without its tokens"
        self._check_end(stream, event)
        stream.ends[event.choice] = event.state
        if not stream.is_open:
            self.num_finished += 1
            del self.streams[event.handle]

    def _check_end(self, stream: Stream, event: FinishedEvent) -> None:
        tokens, state = expected_output(stream.submission, event.choice, self.model)
        held = stream.tokens[event.choice]
        assert held == tokens[: len(held)], "wrong tokens"
        if event.state is State.FINISHED_ABORTED:
            assert event.error is not None
            assert event.error.code == "deadline_exceeded"
        elif event.state is State.FINISHED_FAILED:
            assert self.is_failing_allowed
        else:
            assert (held, event.state) == (tokens, state)
