"""Values in pieces: the same afterwards, and no piece is large."""

import marshal

import pytest

from pagewire_frontend.http.body.value_pieces import PIECE_COST, cut, join

MANY = 3 * PIECE_COST // 32
VALUES = {
    "nothing": {},
    "scalars": {"a": None, "b": [1, -2.5, True, 2**80], "ü": "\0😀\\", "e": [[], {}]},
    "a long text": {"prompt": "time \n upon " * (PIECE_COST // 3), "n": 1},
    "a long text of wide characters": {"prompt": ["x", "\U0001f600中" * PIECE_COST]},
    "ids": {"model": "m", "prompt": list(range(MANY))},
    "lists of ids": {"prompt": [list(range(MANY // 2))] * 3 + [[1]]},
    "short texts": {"stop": [f"text {number}" for number in range(MANY)]},
    "names": {"x": {f"name {number}": number for number in range(MANY)}, "y": 0},
    "names at the top": {f"name {number}": [number] for number in range(MANY)},
    "messages": {
        "messages": [{"role": "user", "content": [{"text": "word " * 100}]}] * (MANY // 50)
    },
    "long texts in deep places": {"a": [{"b": [[{"c": "x" * 3 * PIECE_COST}] * 3, 5]}] * 2},
    "deep": [],
}
for _ in range(195):
    VALUES["deep"] = {"x": [VALUES["deep"], "y" * (PIECE_COST // 50)]}
VALUES["deep"] = {"deep": VALUES["deep"]}


def pieces_of(value):
    pieces = []
    pieces.append(cut(value, pieces.append))
    return pieces


def weight(value):
    """Return how many objects a value has, and how many characters."""
    if isinstance(value, str):
        return 1, len(value)
    if isinstance(value, (list, dict)):
        inner = [weight(item) for item in value]
        if isinstance(value, dict):
            inner += [weight(item) for item in value.values()]
        return 1 + sum(one for one, _ in inner), sum(one for _, one in inner)
    return 1, 0


def order(value):
    """Return a value with the order of its names, which == does not look at."""
    if isinstance(value, dict):
        return [(name, order(item)) for name, item in value.items()]
    return [order(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_the_same_afterwards(name):
    found = join(pieces_of(VALUES[name]))
    assert found == VALUES[name]
    assert order(found) == order(VALUES[name])


@pytest.mark.parametrize("name", VALUES)
def test_no_piece_is_large(name):
    for piece in pieces_of(VALUES[name]):
        value, holes = marshal.loads(piece)
        num_objects, num_chars = weight(value)
        assert num_objects <= 2 * PIECE_COST // 32
        assert num_chars <= 2 * PIECE_COST
        assert len(holes) <= PIECE_COST // 32
