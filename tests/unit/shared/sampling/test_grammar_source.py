import json
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling import grammar_walks
from pagewire_shared.sampling.grammar_source import (
    check,
    compile_grammar,
    grammar_text,
    load_grammar_tokenizer,
)
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from support.checkpoints.checkpoints import EOS_TOKEN_ID, write_tokenizer
from support.oracles.grammars import LANGUAGES, MOODS
from support.source_tree import ROOT

VOCAB = 259  # every byte is a token


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("bytes")
    write_tokenizer(folder, VOCAB)
    return load_grammar_tokenizer((folder / "tokenizer.json").read_text(), VOCAB, [EOS_TOKEN_ID])


def is_accepted(tokenizer, params, text):
    """Whether a whole output is allowed, byte by byte, and may end there."""
    matcher = compile_grammar(tokenizer, params)
    ids = tokenizer.tokenize_bytes(text if isinstance(text, bytes) else text.encode())
    return matcher.validate_tokens(ids) == len(ids) and (
        matcher.consume_tokens(ids) and matcher.is_accepting()
    )


@pytest.mark.parametrize("text", MOODS + tuple("\u2028\u0085\ufeff/%'|$\t\r") + ("<[2]>", "\\n"))
def test_a_choice_is_taken_as_it_is_written(tokenizer, text):
    others = ("other", "y", "\U0010ffff", *MOODS)
    params = Params(choice=(*others, text))
    assert is_accepted(tokenizer, params, text)
    assert not is_accepted(tokenizer, params, text + "x")
    assert not is_accepted(tokenizer, params, text[:-1] + "#")
    assert all(is_accepted(tokenizer, params, other) for other in others)


def test_texts_of_special_tokens_are_spelled_as_plain_text(tokenizer):
    matcher = compile_grammar(tokenizer, Params(choice=("<|im_end|>",)))
    assert matcher.validate_tokens([EOS_TOKEN_ID]) == 0
    assert is_accepted(tokenizer, Params(choice=("<|im_end|>",)), b"<|im_end|>") is False
    letters = [tokenizer.tokenize_str(letter)[0] for letter in "<|im_end|>"]
    assert matcher.consume_tokens(letters)
    assert matcher.is_accepting()


def test_choices_at_the_bounds_are_accepted(tokenizer):
    check(tokenizer, Params(choice=tuple(f"{index:04}" + "é😀" * 510 for index in range(1024))))


@pytest.mark.parametrize(
    ("text", "is_fine"),
    [
        ('{"a":1,"b":[]}', True),
        ('{"a": 1, "b": [1, 2]}', True),
        ('{\n  "a": 1,\n  "b": [\n    1\n  ]\n}', True),
        ('{"a":  1}', False),
        ('{"a":\n\n1}', False),
        ("{\n" + " " * 21 + '"a": 1}', False),
        (' {"a": 1}', False),
        ('{"a": 1} ', False),
        ("[]", False),
    ],
)
def test_white_space_in_json_is_bounded(tokenizer, text, is_fine):
    assert is_accepted(tokenizer, Params(json_object=True), text) is is_fine
    schema = {"type": "object", "x-guidance": {"whitespace_pattern": " *"}}
    assert is_accepted(tokenizer, Params(json=schema), text) is is_fine


@pytest.mark.parametrize(
    ("text", "is_fine"),
    [
        ('{"a":1,"b":[1,2]}', True),
        ('{"a": 1,"b":[1,2]}', False),
        ('{"a":1, "b":[1,2]}', False),
        ('{"a":1,"b":[1, 2]}', False),
        ('{\n"a":1,"b":[1,2]}', False),
        ('{"a":" , "}', True),
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        {"json_object": True, "disable_any_whitespace": True},
        {"json": True, "disable_any_whitespace": True},
        {"json": {"type": "object"}, "disable_any_whitespace": True},
        {"json": {"type": "object", "x-guidance": {"whitespace_flexible": False}}},
        {
            "json": {"type": "object", "x-guidance": {"whitespace_pattern": " *"}},
            "disable_any_whitespace": True,
        },
    ],
)
def test_json_without_white_space(tokenizer, fields, text, is_fine):
    assert is_accepted(tokenizer, Params(**fields), text) is is_fine


def test_further_properties_can_be_left_out(tokenizer):
    """Also those of inner objects, and not where the schema says something of them."""
    inner = {"type": "object", "properties": {"properties": {"type": "integer"}}}
    told = {**inner, "additionalProperties": {"type": "boolean"}}
    data = [{"properties": {"x": 1}}]
    schema = {
        "type": "object",
        "properties": {
            "inner": {"$ref": "#/$defs/inner"},
            "some": {"type": "array", "items": inner},
            "told": told,
            "data": {"enum": data},
        },
        "$defs": {"inner": inner},
    }
    params = Params(json=schema, disable_additional_properties=True)
    for text, is_closed in (
        ('{"inner": {"properties": 1}}', False),
        ('{"other": 1}', True),
        ('{"inner": {"properties": 1, "other": 1}}', True),
        ('{"some": [{"other": 1}]}', True),
        ('{"told": {"other": true}}', False),
        ('{"data": {"properties": {"x": 1}}}', False),
    ):
        assert is_accepted(tokenizer, params, text) is not is_closed, text
        assert is_accepted(tokenizer, Params(json=schema), text), text


def test_boolean_schemas(tokenizer):
    assert is_accepted(tokenizer, Params(json=True), "[1]")
    with pytest.raises(InvalidRequestError, match="JSON schema"):
        check(tokenizer, Params(json=" false "))


def test_both_dialects_of_grammars(tokenizer):
    for grammar in ('root ::= "ä" [b-d]+ # rest', 'start: "ä" REST\nREST: /[b-d]+/'):
        assert is_accepted(tokenizer, Params(grammar=grammar), "äbcd")
        assert not is_accepted(tokenizer, Params(grammar=grammar), "äbce")


def test_every_language_passes(tokenizer):
    for language in LANGUAGES:
        check(tokenizer, language.params)


def properties(number):
    return {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(number)}}


BAD = {
    "itself": (Params(json='{"$ref": "#"}'), "no text matches"),
    "circle": (
        Params(
            json={
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
                "$ref": "#/$defs/a",
            }
        ),
        "no text matches",
    ),
    "no such reference": (Params(json='{"$ref": "#/$defs/x"}'), "'/$defs/x' does not exist"),
    "a foreign reference": (Params(json='{"$ref": "http://x.example/y"}'), "x.example"),
    "unknown type": (Params(json={"type": "strung"}), "Invalid type: strung"),
    "unknown format": (Params(json={"type": "string", "format": "odd"}), "odd"),
    "bad pattern": (Params(json={"type": "string", "pattern": "(a"}), "unclosed group"),
    "look-ahead": (Params(json={"type": "string", "pattern": "(?=a)b"}), "look-ahead"),
    "not": (Params(json={"not": {"type": "string"}}), 'Unimplemented keys: ["not"]'),
    "unique": (Params(json={"type": "array", "uniqueItems": True}), "uniqueItems"),
    "no json": (Params(json='{"minimum": NaN}'), "line 1 column"),
    "too many alternatives": (
        Params(grammar="start: " + " | ".join(f'"x{i}" a' for i in range(4000)) + '\na: "b"'),
        "max is 2000",
    ),
    "too many properties": (Params(json=properties(900)), "max is 2000"),
    "bad regex": (Params(regex="[a-"), "regex parse error: unclosed character class"),
    "empty regex": (Params(regex=r"[^\s\S]"), "no text matches"),
    "back-reference": (Params(regex=r"(a)\1"), "backreferences"),
    "unknown rule": (Params(grammar="start: foo"), 'unknown name: "foo"'),
    "open string": (Params(grammar='start: "a'), "lexer error"),
    "no root": (Params(grammar='greeting ::= "a"'), "as GBNF: No 'root' rule"),
    "unknown GBNF rule": (Params(grammar="root ::= foo"), "as GBNF: Rule 'foo' not found"),
    "cut off": (Params(grammar='root ::= "a\\'), "as GBNF: string index"),
    "no grammar": (Params(grammar="hello there"), "as GBNF: Expected ::="),
    "nothing but itself": (Params(grammar='start: start "a"'), "no text matches"),
    "deep GBNF": (Params(grammar="root ::= " + "(" * 30000), "recursion"),
    "deep Lark": (Params(grammar="start: " + "(" * 30000), "too deeply nested"),
}


def test_a_grammar_that_no_text_matches_does_not_compile(tokenizer):
    """A worker does not walk: what no text matches must be found without."""
    for name in ("itself", "circle", "empty regex", "nothing but itself"):
        with pytest.raises(InvalidRequestError, match="no text matches"):
            compile_grammar(tokenizer, BAD[name][0])


@pytest.mark.parametrize("name", BAD)
def test_a_compile_error_has_one_line(tokenizer, name):
    params, reason = BAD[name]
    with pytest.raises(InvalidRequestError) as caught:
        check(tokenizer, params)
    error = caught.value
    assert reason in error.message
    assert "\n" not in error.message
    assert len(error.message) < 300
    assert (error.field, error.code) == ("structured_outputs", "invalid_grammar")
    assert error.message.startswith("structured_outputs: the ")


@pytest.mark.parametrize(
    "params",
    [
        Params(regex="(a|b){1,100000}c"),
        Params(regex="(((a{1,100}){1,100}){1,100}){1,100}b"),
        Params(regex="(x+x+)+y"),
        Params(regex=".*a.{900}"),
        Params(json={"type": "string", "maxLength": 100_000_000}),
        Params(json={"enum": [f"value number {index}" for index in range(3000)]}),
        Params(json=properties(300)),
        Params(grammar="start: " + " | ".join(f'"x{i}" a' for i in range(1500)) + '\na: "b"'),
        Params(grammar='start: s\ns: "a" s | "b" s | ""'),
    ],
    ids=range(9),
)
def test_large_harmless_grammars_pass(tokenizer, params):
    check(tokenizer, params)


def test_logits_beyond_the_tokenizer_are_never_allowed(tokenizer):
    text = (ROOT / "pagewire" / "builtin_model" / "tokenizer.json").read_text()
    padded = load_grammar_tokenizer(text, 3200, [2, 3, 99999])
    assert sorted(padded.eos_tokens) == [2, 3]
    bits = np.frombuffer(compile_grammar(padded, Params(regex=r"(?s:.*)")).compute_bitmask(), "u1")
    allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    assert {2, 3} <= set(allowed.tolist())
    assert allowed.max() < 3072


def test_a_tokenizer_that_does_not_fit_is_refused():
    text = (ROOT / "pagewire" / "builtin_model" / "tokenizer.json").read_text()
    for tokenizer_json, vocab in ((text, 100), ("{}", 3072)):
        with pytest.raises(InvalidRequestError, match="tokenizer cannot be used"):
            load_grammar_tokenizer(tokenizer_json, vocab, [2])


def test_a_schema_keeps_its_own_order_and_options(tokenizer):
    schema = {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object"}]}
    with pytest.raises(InvalidRequestError, match="oneOf"):
        check(tokenizer, Params(json=schema))
    check(tokenizer, Params(json={**schema, "x-guidance": {"coerce_one_of": True}}))
    assert json.loads(grammar_text(Params(json=schema)))


def test_half_a_character_is_refused_before_it_has_an_id():
    for fields in ({"regex": "\ud800"}, {"choice": ("a", "\udc00")}, {"json": '{"a": "\ud800"}'}):
        with pytest.raises(InvalidRequestError, match="not valid Unicode"):
            Params(**fields)


RULE = '\na: a a a | a a | "a" | "b"'
AMBIGUOUS = {
    "46 characters": f"start: a{RULE}",
    "behind a word": f'start: "begin" a "end"{RULE}',
    "behind many words": f'start: "{"once upon a time " * 30}" a "end"{RULE}',
    "behind digits": f"start: /[0-9]{{70}}/ a{RULE}",
    "before much": f'start: "x" a "." /[a-z]+/{RULE}',
    "before little": f'start: "x" a "." /0+/{RULE}',
    "GBNF": 'root ::= a\na ::= a a a | a a | "a" | "b" | [c-z]',
    "deeper": 'start: a\na: b b b | b b | "x"\nb: a a a | a a | a | "y"',
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_grammars_are_refused_by_the_check(name):
    folder = ROOT / "pagewire" / "builtin_model"
    tokenizer = load_grammar_tokenizer((folder / "tokenizer.json").read_text(), 3072, [2])
    with pytest.raises(InvalidRequestError, match=r"too ambiguous|Too many items") as caught:
        check(tokenizer, Params(grammar=AMBIGUOUS[name]))
    assert (caught.value.field, caught.value.code) == ("structured_outputs", "invalid_grammar")


def test_a_check_counts_what_it_follows_and_not_what_a_lexer_takes_once(tokenizer, monkeypatch):
    """Costs are scripted: one token in fifteen builds a lexer."""
    real, script = grammar_walks._try, cycle([0.01, *[0.0] * 14])
    monkeypatch.setattr(grammar_walks, "SEARCH_SECONDS", 10.0)
    monkeypatch.setattr(grammar_walks, "_try", lambda *a: replace(real(*a), seconds=next(script)))
    matcher = compile_grammar(tokenizer, Params(regex="[a-c]+"))
    picks = grammar_walks._Picks(tokenizer)
    assert grammar_walks._search(tokenizer, matcher, picks, 1) is None
    script = cycle([0.005])
    assert "16 tokens" in str(grammar_walks._search(tokenizer, matcher, picks, 1))


def test_real_grammars_of_many_parts_pass(tokenizer):
    check(tokenizer, Params(json={**properties(300), "additionalProperties": False}))
    check(tokenizer, Params(json={"enum": [f"text {index}" for index in range(900)]}))
    alternatives = " | ".join(f'"x{index}" a' for index in range(1500))
    check(tokenizer, Params(grammar=f'start: {alternatives}\na: "b" start | "c"'))
    check(tokenizer, Params(grammar='start: e\ne: e "+" e | e "*" e | "(" e ")" | /[0-9]+/'))
