"""Memory of a recipe at the frontend that keeps it, in bytes that were really allocated.

`pytest -s` prints the figures.
"""

import gc
import json
import random
import tracemalloc
from collections.abc import Callable

import pytest

from pagewire_frontend.group.recipe_convert import recipe_from_message, recipe_to_message
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.kept_streams.recipes import RECIPE_BYTES, Recipe, RecipeStore
from pagewire_frontend.http.responses.asked import recipe_body
from pagewire_frontend.http.responses.ids import ItemIds
from pagewire_frontend.http.responses.items import input_message
from pagewire_protos.frontend.v1 import inference_pb2, peer_pb2

SIZES = (1024, 16 * 1024, 256 * 1024)
TURN_CHARS = 40
FRAMES = 16
"""Of the stack of an allocation: more than there are between it and this file."""
MOST_TIMES = 2.0
"""Bytes of memory for each byte of the prompt, beside RECIPE_BYTES."""

Made = tuple[int, bytes]
"""Bytes of a prompt, and a body with it."""


def letters(draw: random.Random, size: int, low: int, high: int) -> str:
    return "".join(map(chr, draw.choices(range(low, high + 1), k=size)))


def chat(text: str) -> Made:
    messages = [{"role": "user", "content": text}]
    return len(text.encode()), json.dumps({"model": "m", "messages": messages}).encode()


def noise(draw: random.Random, size: int) -> Made:
    return chat(letters(draw, size, 32, 126))


def escaped(draw: random.Random, size: int) -> Made:
    """Three bytes of JSON for one of the text."""
    return chat(letters(draw, size // 2, 0xE0, 0x17F))


def ids(draw: random.Random, size: int) -> Made:
    """Token ids as JSON; a prompt of ids has four bytes for each."""
    found = draw.choices(range(200_000), k=size // 4)
    return size, json.dumps({"model": "m", "prompt": found}).encode()


def packed_ids(draw: random.Random, size: int) -> Made:
    """Token ids of a call."""
    found = draw.choices(range(200_000), k=size // 4)
    request = inference_pb2.CompleteRequest(token_ids={"ids": found})
    return size, request.SerializeToString()


def turns(draw: random.Random, size: int) -> Made:
    """A conversation of short turns before the input of a response."""
    names = ItemIds(Pins(draw.randbytes(32), 0), "input")
    texts = [letters(draw, TURN_CHARS, 97, 122) for _ in range(size // TURN_CHARS)]
    items = [input_message("user", text, names.next("msg")) for text in texts]
    return TURN_CHARS * len(items), recipe_body(items, b'{"model": "m", "input": "hi"}')


def memory_of(body: bytes, count: int) -> float:
    """Return the bytes allocated while `count` recipes come into a store, for each of them.

    Other threads of the process allocate meanwhile: what this file has no part in is left out.
    """
    draw = random.Random(1)
    recipe = Recipe(
        stream_id="",
        tenant="tenant",
        key_digest=draw.randbytes(32),
        path="/v1/chat/completions",
        body=body,
        pins=Pins(draw.randbytes(32), 0),
        digest=draw.randbytes(32),
        numerics=draw.randbytes(32),
        cached_tokens=[16],
    )
    sent = recipe_to_message(recipe)
    store = RecipeStore(2**30, 60.0)
    gc.collect()
    tracemalloc.start(FRAMES)
    try:
        for number in range(count):
            sent.stream_id = f"stream_{number:08x}_{number:032x}"
            message = peer_pb2.KeepRecipeRequest.FromString(sent.SerializeToString())
            store.put(recipe_from_message(message).packed())
            del message
        gc.collect()
        allocated = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    ours = allocated.filter_traces([tracemalloc.Filter(True, __file__, all_frames=True)])
    per_recipe = sum(trace.size for trace in ours.traces) / count
    assert per_recipe <= store.num_bytes / count, "it is counted with less than it takes"
    found = store.find(f"stream_{0:08x}_{0:032x}", "tenant")
    assert found is not None
    assert found.unpacked().body == body
    return per_recipe


@pytest.mark.parametrize("kind", [noise, escaped, ids, packed_ids, turns])
def test_a_recipe_takes_at_most_twice_its_prompt(kind: Callable[..., Made]) -> None:
    for size in SIZES:
        num_bytes, body = kind(random.Random(size), size)
        memory = memory_of(body, 20 if size < SIZES[-1] else 6)
        print(f"{kind.__name__} {num_bytes} prompt {len(body)} body {memory:.0f} memory")
        assert memory <= MOST_TIMES * num_bytes + RECIPE_BYTES
