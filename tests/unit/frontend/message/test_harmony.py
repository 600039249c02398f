"""Answers in the harmony format, compared with openai-harmony's: what the library makes of them is
in harmony.json, which tests/clients/harmony_record.py wrote."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from pagewire_frontend.message.harmony import HarmonyFormat, harmony_of
from pagewire_frontend.message.harmony_tokens import with_marks
from pagewire_frontend.message.pieces import MessagePieces, merged
from pagewire_frontend.models.tokenizer import TextTokenizer
from pagewire_frontend.session.choice_text import ChoiceText
from pagewire_shared.sampling.params import SamplingParams

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("harmony.json").read_text())
ANSWERS: list[dict[str, Any]] = RECORDED["answers"]
NAMES = frozenset({"f", "g-2"})
PROMPT_END = "<|end|><|start|>assistant"
CUTS = 8
"""Ways to cut each of the 125 answers."""

Said = list[tuple[str, str]]
"""Messages: their kind, or the name of a called function, and text."""


def byte_alphabet() -> dict[int, str]:
    """Return GPT-2's character for each byte."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in kept]
    shifted = {byte: chr(256 + index) for index, byte in enumerate(others)}
    return {byte: chr(byte) for byte in kept} | shifted


class Vocabulary:
    """A tokenizer with the tokens of the recorded answers."""

    def __init__(self) -> None:
        alphabet = byte_alphabet()
        spelled = {text for one in ANSWERS for is_special, text in one["tokens"] if not is_special}
        words = ["".join(alphabet[ord(char)] for char in text) for text in sorted(spelled)]
        self._ids = {(0, text): index for index, text in enumerate(sorted(spelled))}
        tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(
            [AddedToken(token, special=True) for token in RECORDED["tokens"]]
        )
        self.tokenizer = TextTokenizer(tokenizer)
        form = harmony_of(self.tokenizer.added_tokens)
        assert form is not None
        self.form: HarmonyFormat = form
        self._ids |= {(1, text): token_id for text, token_id in form.ids.items()}

    def ids(self, tokens: Sequence[tuple[int, str]]) -> list[int]:
        return [self._ids[is_special, text] for is_special, text in tokens]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary()


def cut(items: Any, dice: random.Random) -> Iterator[Any]:
    most = dice.choice((1, 3, 10))
    while items:
        length = dice.randint(1, most)
        yield items[:length]
        items = items[length:]


def texts_of(vocabulary: Vocabulary, ids: list[int], dice: random.Random) -> Iterator[str]:
    """Yield the text of an answer, its tokens in steps and each text in pieces."""
    form = vocabulary.form
    text = ChoiceText(
        vocabulary.tokenizer, [0, 1], SamplingParams(seed=1), form.stop_ids, marks=form.marks
    )
    for step in cut(ids, dice):
        yield from cut(text.push(step)[1], dice)
    yield text.flush()[1]


def read(form: HarmonyFormat, texts: Any, names: frozenset[str] = NAMES) -> MessagePieces:
    reader = form.new_reader(names, max_calls=None, prompt_end=PROMPT_END)
    pieces = MessagePieces()
    for text in texts:
        pieces = merged(pieces, reader.push(text))
    return merged(pieces, reader.finish())


def said(pieces: MessagePieces) -> Said:
    """Return the messages of an answer in their order."""
    found: Said = []
    for part in pieces.parts:
        for call in part.calls:
            if call.name is not None:
                found.append((call.name, ""))
            found[-1] = (found[-1][0], found[-1][1] + call.arguments)
        if part.reasoning or part.content:
            kind = "reasoning" if part.reasoning else "content"
            if part.begins:
                found.append((kind, ""))
            assert found[-1][0] == kind
            found[-1] = (kind, found[-1][1] + part.reasoning + part.content)
    return found


def expected(messages: list[dict[str, Any]]) -> Said:
    found: Said = []
    for message in messages:
        name = (message["recipient"] or "").removeprefix("functions.")
        text = message["text"]
        if name in NAMES:
            found.append((name, text or "{}"))
        elif text:
            found.append(("reasoning" if message["channel"] == "analysis" else "content", text))
    return found


def test_a_thousand_chunkings_are_read_as_the_library_reads_them(vocabulary: Vocabulary) -> None:
    compared = 0
    for number, answer in enumerate(ANSWERS):
        ids = vocabulary.ids(answer["tokens"])
        for seed in range(CUTS):
            texts = texts_of(vocabulary, ids, random.Random(CUTS * number + seed))
            # Where the library fails, ours must not.
            pieces = read(vocabulary.form, texts)
            if answer["messages"] is None:
                continue
            messages = expected(answer["messages"])
            assert said(pieces) == messages, answer
            kinds = {"reasoning": pieces.reasoning, "content": pieces.content}
            for kind, whole in kinds.items():
                assert whole == "\n\n".join(text for name, text in messages if name == kind)
            calls = [(call.name, call.arguments) for call in pieces.calls]
            assert calls == [item for item in messages if item[0] in NAMES]
            compared += 1
    assert compared > 100 * CUTS


FINAL = [(1, "<|channel|>"), (0, "final"), (1, "<|message|>")]
F = " <|constrain|>json<|message|>{}"
A = "<|channel|>analysis<|message|>"
MALFORMED: list[tuple[str, Said]] = [
    # No headers at all, and texts that begin like one.
    ("Hello\nworld", [("content", "Hello\nworld")]),
    ("total: to=f", [("content", "total: to=f")]),
    ("to", [("content", "to")]),
    ("assistants are", [("content", "assistants are")]),
    ("<|message|>x", [("content", "x")]),
    ("<|constrain|>json", [("content", "json")]),
    # No <|message|>.
    ("<|channel|>final hello how<|end|>", [("content", "hello how")]),
    ("<|channel|>analysis Hm.\nSo \n.", [("reasoning", "Hm.\nSo \n.")]),
    ("<|channel|>final " + "word " * 99, [("content", "word " * 99)]),
    ("<|channel|>commentary to=functions.f <|constrain|>js", []),
    ("<|channel|>commentary to=functions.f json<|call|>", []),
    ("<|channel|>fin", []),
    ("<|channel|>commentary to", []),
    # No channel, an unknown one, two.
    ("<|channel|><|message|>x", [("content", "x")]),
    ("<|channel|>weird<|message|>x", [("content", "x")]),
    ("<|channel|>analysis<|channel|>final<|message|>x", [("reasoning", "x")]),
    # Recipients in every place and spelling.
    (f" to=functions.f<|channel|>commentary{F}", [("f", "{}")]),
    ("<|channel|>commentary to=functions.f<|constrain|>json<|message|>", [("f", "{}")]),
    (f" to=functions.f{F}", [("f", "{}")]),
    (f"to=f<|constrain|>json<|channel|>analysis{F}", [("f", "{}")]),
    ("<|channel|>commentary functions.f<|message|>{", [("f", "{")]),
    (f"<|channel|>commentary to=f{F}", [("f", "{}")]),
    (f"<|channel|>commentary to=functions.f in some other words{F}", [("f", "{}")]),
    (f"<|channel|>commentary to=functions.unknown{F}", [("content", "{}")]),
    (f"<|channel|>analysis to=browser.search{F}", [("reasoning", "{}")]),
    # Ends and beginnings are missing, or somebody else speaks.
    (f"{A}a<|channel|>final<|message|>b", [("reasoning", "a"), ("content", "b")]),
    (f"{A}a<|end|>{A}b", [("reasoning", "a"), ("reasoning", "b")]),
    (f"{A}a<|end|> b", [("reasoning", "a"), ("content", "b")]),
    (f"{A}a<|start|>b c", [("reasoning", "a"), ("content", "b c")]),
    (f"{A}a<|message|><|constrain|>b", [("reasoning", "ab")]),
    (f"{A}a<|end|><|start|>user<|message|>b<|end|>", [("reasoning", "a")]),
    (f"{A}a<|end|><|start|>functions.f to=assistant<|message|>b", [("reasoning", "a")]),
    (f"{A}a<|end|><|start|>browser to=assistant<|message|>b", [("reasoning", "a")]),
    ("<|channel|>" * 999 + "<|message|>x", [("content", "x")]),
    ("<|end|><|return|>", []),
    ("", []),
]


@pytest.mark.parametrize(("text", "messages"), MALFORMED)
def test_malformed_answers_lose_no_text(text: str, messages: Said) -> None:
    form = HarmonyFormat({})
    marked = with_marks(text)
    assert said(read(form, [marked])) == messages
    for seed in range(4):
        dice = random.Random(seed)
        assert said(read(form, cut(marked, dice))) == messages


WORDS = ("assistant", "to=functions.f", "to=", "json", " ", "\n", "user", "final", "hm", "t", "{")


def test_any_sequence_is_read_the_same_in_any_cut() -> None:
    form = HarmonyFormat({})
    for seed in range(800):
        dice = random.Random(seed)
        words = dice.choices([*RECORDED["tokens"], *WORDS], k=dice.randint(1, 14))
        text = with_marks("".join(words))
        whole = read(form, [text])
        for texts in (text, cut(text, dice)):
            pieces = read(form, texts)
            assert said(pieces) == said(whole), words
            assert (pieces.reasoning, pieces.content) == (whole.reasoning, whole.content)


def test_half_a_character_ends_with_its_message(vocabulary: Vocabulary) -> None:
    tokens = [*FINAL, (0, "ð\x9f\x94"), (1, "<|end|>"), (1, "<|message|>"), (0, "to")]
    dice = random.Random(0)
    pieces = read(vocabulary.form, texts_of(vocabulary, vocabulary.ids(tokens), dice))
    assert pieces.content == "\N{REPLACEMENT CHARACTER}\n\nto"


def test_text_that_spells_a_mark_is_no_token(vocabulary: Vocabulary) -> None:
    """Not even the characters that stand for tokens."""
    form = HarmonyFormat(vocabulary.form.ids)
    detokenizer = ChoiceText(
        BytesOfMark(vocabulary.tokenizer), [], SamplingParams(seed=1), (), marks=form.marks
    )
    _, text, _ = detokenizer.push([*vocabulary.ids(FINAL), 0])
    pieces = read(form, [text])
    assert pieces.content == "\N{REPLACEMENT CHARACTER}"


class BytesOfMark:
    """A tokenizer whose token 0 is the mark of <|end|>."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer

    def open_stream(self, first_ids: Sequence[int], *, skip_special_tokens: bool) -> Any:
        step = self._tokenizer.open_stream(first_ids, skip_special_tokens=skip_special_tokens)
        return lambda token_id: step(token_id) if token_id else with_marks("<|end|>")

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def byte_reader(self, *, skip_special_tokens: bool) -> Any:
        return self._tokenizer.byte_reader(skip_special_tokens=skip_special_tokens)
