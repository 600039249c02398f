"""Stop strings, proved on random outputs: a stream, a whole answer and a naive search of the whole
text agree, whatever the tokens and however they arrive.

Outputs are texts of one to four byte characters, special tokens between them, cut anywhere (also
within a character). Stops are taken from the text, so that most match: across token borders,
overlapping, one the beginning or the end of another.
"""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

import pagewire
from pagewire_frontend.models.tokenizer import TextTokenizer, load_tokenizer
from pagewire_frontend.session.events import Delta, Finished, FinishReason
from pagewire_frontend.session.journal import JournalEntry
from pagewire_frontend.session.session import Session
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams

NUM_CASES = 500
PIECES = (
    "the cat sat on the mat. ",
    "\n\n",
    "END",
    "</s>",
    "naïve café ",
    "€100 ",
    "日本語の文 ",
    "😀",
    "👩‍👩‍👧",
    "🏳️‍🌈 ",
    "ab",
    "aab",
    "a",
    "b",
)
SPECIAL = ("<|endoftext|>", "<|im_end|>")


def byte_level_bpe() -> TextTokenizer:
    """A tokenizer whose merges end within characters: emoji and kanji take several tokens."""
    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(text, special=True) for text in SPECIAL],
        show_progress=False,
    )
    built.train_from_iterator(PIECES * 3, trainer)
    return TextTokenizer(built)


def builtin() -> TextTokenizer:
    return load_tokenizer(Path(pagewire.__file__).parent / "builtin_model")


@dataclass(frozen=True)
class Case:
    """An output, what is asked of it, and how it arrives."""

    token_ids: list[int]
    params: SamplingParams
    chunk_sizes: list[int]


def random_case(rng: random.Random, tokenizer: TextTokenizer) -> Case:
    ids: list[int] = []
    for _ in range(rng.randint(1, 12)):
        ids += tokenizer.encode(rng.choice(PIECES), add_special_tokens=False)
        if rng.random() < 0.2:
            special = tokenizer.id_of(rng.choice(SPECIAL))
            assert special is not None
            ids.append(special)
    ids = ids[: rng.randint(1, len(ids))]
    skip = rng.random() < 0.5
    text = tokenizer.decode(ids, skip_special_tokens=skip)
    params = SamplingParams(
        seed=1,
        max_tokens=len(ids),
        stop=random_stops(rng, text),
        min_tokens=rng.choice([0, 0, rng.randint(0, len(ids))]),
        include_stop_str_in_output=rng.random() < 0.4,
        skip_special_tokens=skip,
    )
    sizes = [rng.choice([1, 1, 2, 5, 50]) for _ in ids]
    return Case(ids, params, sizes)


def random_stops(rng: random.Random, text: str) -> tuple[str, ...]:
    stops: list[str] = []
    whole = text.replace("�", "") or "x"
    while len(stops) < rng.randint(1, 4):
        begin = rng.randrange(len(whole))
        stop = whole[begin : begin + rng.choice([1, 2, 3, 6, 20])]
        kind = rng.random()
        if stops and kind < 0.25:
            stop = stops[-1] + rng.choice("ab €")
        elif stops and kind < 0.5:
            stop = stops[-1][rng.randrange(len(stops[-1])) :]
        elif kind < 0.6:
            stop += "never"
        stops.append(stop[:256])
    return tuple(stops[:4])


def bytes_of(tokenizer: TextTokenizer, case: Case, num_tokens: int) -> bytes:
    skip = case.params.skip_special_tokens
    special = {tokenizer.id_of(text) for text in SPECIAL}
    return b"".join(
        b"" if skip and token_id in special else tokenizer.token_bytes(token_id)
        for token_id in case.token_ids[:num_tokens]
    )


def num_shown(tokenizer: TextTokenizer, case: Case, num_tokens: int) -> int:
    """Return how many characters can be known after some tokens: nothing comes out while the last
    token ends within a character, even where it also completes one."""
    while True:
        known = bytes_of(tokenizer, case, num_tokens)
        try:
            return len(known.decode())
        except UnicodeDecodeError:
            num_tokens -= 1


def naive(tokenizer: TextTokenizer, case: Case) -> tuple[str, str | None, int]:
    """Return text, stop string and number of tokens, from a search of the whole text: the first
    character that completes a stop string ends it, and the longest such string is cut."""
    params, num_tokens = case.params, len(case.token_ids)
    text = tokenizer.decode(case.token_ids, skip_special_tokens=params.skip_special_tokens)
    # Half a character at the end of an output is no text.
    last = len(bytes_of(tokenizer, case, num_tokens).decode(errors="ignore"))
    exempt = num_shown(tokenizer, case, params.min_tokens)
    if params.min_tokens == num_tokens:
        exempt = last
    for end in range(exempt + 1, last + 1):
        for stop in sorted(params.stop, key=len, reverse=True):
            if text[:end].endswith(stop):
                shown = text[:end] if params.include_stop_str_in_output else text[: end - len(stop)]
                enough = (n for n in range(num_tokens) if num_shown(tokenizer, case, n) >= end)
                return shown, stop, next(enough, num_tokens)
    return text, None, num_tokens


def new_session(tokenizer: TextTokenizer, case: Case) -> Session:
    entry = JournalEntry(
        request_id=RequestId(b"r" * 16),
        model="m",
        prompt_token_ids=tokenizer.encode("a prompt", add_special_tokens=False),
        params=case.params,
    )
    session = Session(entry, tokenizer, arrived_at=0.0, deadline=None)
    session.submit(1)
    return session


async def answer(
    tokenizer: TextTokenizer, case: Case, *, is_read_at_once: bool
) -> tuple[str, str | None, int, list[str]]:
    """Return text, stop string, number of tokens and the pieces that a reader got."""
    session = new_session(tokenizer, case)
    pieces: list[str] = []
    ends: list[Finished] = []
    num_tokens = 0

    async def read() -> None:
        nonlocal num_tokens
        async for event in session.events():
            if isinstance(event, Delta):
                num_tokens += len(event.token_ids)
            if isinstance(event, Finished):
                ends.append(event)
            if isinstance(event, Delta | Finished):
                pieces.append(event.text)

    reader = asyncio.create_task(read()) if is_read_at_once else None
    position = 0
    for size in case.chunk_sizes:
        chunk = case.token_ids[position : position + size]
        if session.is_over or not chunk:
            break
        session.on_tokens(0, 0, position, chunk, [], 0, 0.0)
        position += len(chunk)
        for _ in range(3 if is_read_at_once else 0):
            await asyncio.sleep(0)
    session.on_finished(0, 0, position, FinishReason.LENGTH, None, None)
    await (reader or read())
    [end] = ends
    has_stopped = end.stop_string is not None
    assert end.reason is (FinishReason.STOP if has_stopped else FinishReason.LENGTH)
    return "".join(pieces), end.stop_string, num_tokens, pieces


@pytest.mark.parametrize("make", [builtin, byte_level_bpe])
async def test_stream_whole_and_naive_search_agree(make):
    tokenizer = make()
    rng = random.Random(20)
    num_matched = num_straddling = 0
    for index in range(NUM_CASES):
        case = random_case(rng, tokenizer)
        expected = naive(tokenizer, case)
        streamed = await answer(tokenizer, case, is_read_at_once=True)
        whole = await answer(tokenizer, case, is_read_at_once=False)
        assert streamed[:3] == expected, (index, case)
        assert whole[:3] == expected, (index, case)
        if expected[1] is not None:
            num_matched += 1
            last = tokenizer.token_text(case.token_ids[expected[2] - 1])
            num_straddling += expected[1] not in last
    # The cases are worth something: many match, many of them over several tokens.
    assert num_matched > NUM_CASES // 3
    assert num_straddling > NUM_CASES // 10


async def test_what_is_streamed_is_never_taken_back():
    """With one token at a time, what was shown after each is a prefix of the answer."""
    tokenizer = byte_level_bpe()
    rng = random.Random(3)
    for _ in range(100):
        case = random_case(rng, tokenizer)
        case = Case(case.token_ids, case.params, [1] * len(case.token_ids))
        text, _, _, pieces = await answer(tokenizer, case, is_read_at_once=True)
        shown = ""
        for piece in pieces:
            shown += piece
            assert naive(tokenizer, case)[0].startswith(shown)
        assert shown == text
        assert len(pieces) > 1 or len(case.token_ids) < 3 or len(text) < 25


async def test_offered_text_and_taken_text_are_one_answer():
    """A reader that takes what it is offered, or refuses it, or is busy, misses and moves
    nothing."""
    tokenizer = byte_level_bpe()
    rng = random.Random(4)
    num_offered = num_taken = 0
    for _ in range(100):
        case = random_case(rng, tokenizer)
        session = new_session(tokenizer, case)
        pieces: list[str] = []

        def take_offer(text: str, pieces: list[str] = pieces) -> bool:
            if rng.random() < 0.3:
                return False
            pieces.append(text)
            return True

        session.listen(lambda: None, take_offer)
        for position, token_id in enumerate(case.token_ids):
            before = len(pieces)
            session.on_tokens(0, 0, position, [token_id], [], 0, 0.0)
            num_offered += len(pieces) > before
            if session.is_over or rng.random() < 0.4:
                events = session.take()
                num_taken += any(isinstance(event, Delta) for event in events)
                pieces += [e.text for e in events if isinstance(e, Delta | Finished)]
            if session.is_over:
                break
        session.on_finished(0, 0, len(case.token_ids), FinishReason.LENGTH, None, None)
        pieces += [e.text for e in session.take() if isinstance(e, Delta | Finished)]
        assert "".join(pieces) == naive(tokenizer, case)[0]
    assert min(num_offered, num_taken) > 100
