"""Bodies at the bounds of docs/limits.md: the last value that is taken and the first that is not;
and bodies that are wrong as a whole."""

import json
from collections.abc import Iterator
from typing import Any

from pagewire_frontend.http.body.json_body import MAX_COMMAS, MAX_NAMES
from pagewire_frontend.http.responses.schemas import (
    MAX_METADATA_KEY_CHARS,
    MAX_METADATA_PAIRS,
    MAX_METADATA_VALUE_CHARS,
)
from pagewire_shared.sampling import checks as limits
from support.traffic.bad_bodies import MODELS, NO_JSON, SAME, UNSERVED, VALID, BadBody

VOCABULARY = 512
HIDDEN = 64
_MAX_INT = 2**31 - 1
# Where more than one prompt or choice would take long, or where a bound needs more than its field.
_NUMBERS: dict[str, tuple[list[Any], list[Any]]] = {
    "n": ([1, limits.MAX_CHOICES], [0, limits.MAX_CHOICES + 1]),
    "best_of": ([1, 3], [0, limits.MAX_CHOICES + 1]),
    "temperature": ([0, 2, 2.0], [-0.001, 2.001]),
    "top_p": ([0.001, 1], [0, 1.001]),
    "top_k": ([-1, 0, _MAX_INT], [-2, _MAX_INT + 1]),
    "min_p": ([0, 1], [-0.001, 1.001]),
    "seed": (
        [limits.MIN_SEED, limits.MAX_SEED],
        [limits.MIN_SEED - 1, limits.MAX_SEED + 1],
    ),
    "max_tokens": ([1], [-1, _MAX_INT, _MAX_INT + 1]),
    "max_completion_tokens": ([1], [0, -1, _MAX_INT, _MAX_INT + 1]),
    "max_output_tokens": ([1], [0, -1, _MAX_INT + 1]),
    "min_tokens": ([0, 1], [-1, 2]),
    "prompt_logprobs": ([0, 20], [-1, 21]),
    "presence_penalty": ([-2, 2], [-2.001, 2.001]),
    "frequency_penalty": ([-2, 2], [-2.001, 2.001]),
    "repetition_penalty": ([0.001, 10], [0, 10.001]),
    "stop": (
        [["a"] * 4, "a" * 256],
        [["a", "b", "c", "d", "e"], "a" * 257, [""], ""],
    ),
    "stop_token_ids": (
        [list(range(128)), [VOCABULARY - 1]],
        [list(range(129)), [VOCABULARY], [-1]],
    ),
    "logit_bias": (
        [{str(number): 1 for number in range(300)}, {"0": 100}, {"0": -100}],
        [
            {str(number): 1 for number in range(301)},
            {"0": 100.001},
            {"0": -100.001},
            {str(VOCABULARY): 1},
            {"-1": 1},
            {"01": 1},
            {"1.0": 1},
            {"\u0663": 1},
            {"9" * 5000: 1},
        ],
    ),
    "allowed_token_ids": ([list(range(VOCABULARY))], [[VOCABULARY], [-1], [1] * 4097]),
    "bad_words": ([["zz"] * 64, ["z" * 20]], [["zz"] * 65, ["z" * 257], [""]]),
    "priority": ([-100, 100], [-101, 101]),
    "truncate_prompt_tokens": ([-1, 1], [0, -2]),
    "dimensions": ([1, HIDDEN], [0, HIDDEN + 1, 65537]),
    "metadata": (
        [
            {str(number): "" for number in range(MAX_METADATA_PAIRS)},
            {"k" * MAX_METADATA_KEY_CHARS: "v" * MAX_METADATA_VALUE_CHARS},
        ],
        [
            {str(number): "" for number in range(MAX_METADATA_PAIRS + 1)},
            {"k" * (MAX_METADATA_KEY_CHARS + 1): ""},
            {"k": "v" * (MAX_METADATA_VALUE_CHARS + 1)},
        ],
    ),
    "chat_template_kwargs": (
        [{f"a{number}": number for number in range(16)}],
        [{f"a{number}": number for number in range(17)}, {"a": []}],
    ),
    "tokens": ([[0, VOCABULARY - 1]], [[VOCABULARY], [-1], [2**64]]),
    "guided_regex": (["a" * 1024], ["a" * 1025, "(", "[z-a]"]),
    "guided_choice": ([["a"] * 3, ["a" * 1024]], [[], ["a" * 1025], ["a"] * 1025, [""]]),
    "guided_grammar": ([], ["root", "a" * 65537]),
    "guided_json": (
        ["{}", {"type": "object"}],
        ["{", {"type": 5}, {"$ref": "#/nowhere"}, {"a": "b" * 65536}],
    ),
}
_ENDPOINTS: dict[str, dict[str, tuple[list[Any], list[Any]]]] = {
    "/v1/completions": {
        "logprobs": ([0, 20], [-1, 21]),
        "prompt": (
            [["a"] * 256, [0, VOCABULARY - 1], [[5], [6]]],
            [["a"] * 257, [], [[]], [VOCABULARY], [-1], [[VOCABULARY]]],
        ),
    },
    "/v1/chat/completions": {"messages": ([], [[]])},
    "/v1/embeddings": {
        "input": (
            [["a"] * 256, [0, VOCABULARY - 1], [[5], [6]]],
            [["a"] * 257, [], [[]], [VOCABULARY], [-1]],
        )
    },
}


def bound_bodies() -> Iterator[BadBody]:
    """Each bound and the value after it, in every body that has the field."""
    for target in sorted(set(MODELS) - SAME - UNSERVED):
        model = MODELS[target]
        known = {**_NUMBERS, **_ENDPOINTS.get(target, {})}
        if target == "/tokenize":
            # Only read with messages.
            del known["chat_template_kwargs"]
        for name in model.model_fields.keys() & known.keys():
            valid, invalid = known[name]
            for is_valid, values in ((True, valid), (False, invalid)):
                for number, value in enumerate(values):
                    body = json.dumps({**VALID[target], name: value}).encode()
                    what = f"{name}: {'good' if is_valid else 'bad'} bound {number}"
                    yield BadBody(target, what, body, is_valid, None if is_valid else name)


def whole_bodies() -> Iterator[BadBody]:
    """What is no body at all, and pieces of one."""
    for target, valid in VALID.items():
        if target in SAME:
            continue
        good = json.dumps(valid).encode()
        wholes = {
            "a list": b"[]",
            "a list of it": b"[" + good + b"]",
            "a text": b'"a"',
            "a number": b"5",
            "null": b"null",
            "blanks": b" \n\t",
            "byte order mark": b"\xef\xbb\xbf" + good,
            "UTF-16": good.decode().encode("utf-16"),
            "two bodies": good + good,
            "a comma more": good[:-1] + b",}",
            "a comment": b"/**/" + good,
            "single quotes": good.replace(b'"', b"'"),
            "commas": b'{"x":[' + b"1," * (MAX_COMMAS + 1) + b"1]}",
            "names": b'{"x":[' + b'{"a":1},' * (MAX_NAMES + 1) + b"1]}",
            **{f"only {kind}": literal for kind, literal in NO_JSON.items()},
            **{f"{size} bytes of it": good[:size] for size in range(len(good))},
        }
        for what, data in wholes.items():
            yield BadBody(target, what, data, False, None)
        if target not in UNSERVED:
            more = good[:-1] + b',"\\u0000":[{}]}'
            yield BadBody(target, "unknown fields", more, True, None)
