"""Recipes of streams: what is drawn for an answer, and the bounds of what a frontend keeps."""

import asyncio
from dataclasses import replace

import pytest

from pagewire_frontend.group.holders import holders_of, maker_of
from pagewire_frontend.group.membership import parse_membership
from pagewire_frontend.group.recipe_convert import recipe_from_message, recipe_to_message
from pagewire_frontend.http.kept_streams.ids import mint_stream_id
from pagewire_frontend.http.kept_streams.pins import Pins, draw_pins
from pagewire_frontend.http.kept_streams.recipes import (
    PACKED_INLINE,
    RECIPE_BYTES,
    Recipe,
    RecipeStore,
    packed_aside,
    unpacked_aside,
)
from pagewire_shared.errors import InvalidRequestError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def recipe(stream_id="stream", tenant=None, num_bytes=1000, **fields):
    values = {
        "key_digest": None,
        "path": "/v1/completions",
        "body": b" " * num_bytes,
        "pins": Pins(bytes(32), 7),
        "digest": bytes(32),
        "numerics": b"",
        "cached_tokens": [16, -1],
    }
    return Recipe(stream_id=stream_id, tenant=tenant, **{**values, **fields})


def test_what_is_drawn_follows_from_the_secret():
    pins, other = draw_pins(), draw_pins()
    again = Pins(pins.secret, pins.created)
    assert (again.seed(0), again.request_id(1)) == (pins.seed(0), pins.request_id(1))
    drawn = {pins.seed(0), pins.seed(1), other.seed(0)}
    assert len(drawn) == 3
    long, short = "call_" + "x" * 24, "y" * 9
    ids = {pins.call_id(choice, index, long) for choice in range(3) for index in range(3)}
    assert len(ids) == 9
    for name in (pins.call_id(0, 0, long), pins.call_id(0, 0, short)):
        assert name.removeprefix("call_").isalnum()
    assert len(pins.call_id(0, 0, long)) == len(long)
    assert len(pins.call_id(0, 0, short)) == len(short)


def test_a_recipe_is_the_same_behind_the_wire():
    for one in (recipe(), recipe(tenant="a", key_digest=b"k" * 32, numerics=b"n" * 32)):
        assert recipe_from_message(recipe_to_message(one)) == one
    message = recipe_to_message(recipe())
    message.secret = b"short"
    with pytest.raises(InvalidRequestError, match="secret"):
        recipe_from_message(message)


@pytest.mark.parametrize(("num_bytes", "num_jobs"), [(PACKED_INLINE, 0), (PACKED_INLINE + 1, 2)])
async def test_large_bodies_are_packed_and_made_whole_in_threads(num_bytes, num_jobs, monkeypatch):
    jobs, to_thread = [], asyncio.to_thread

    def noted(job):
        jobs.append(job)
        return to_thread(job)

    monkeypatch.setattr(asyncio, "to_thread", noted)
    whole = recipe(num_bytes=num_bytes)
    packed = await packed_aside(whole)
    # A few hundred bytes now: what they become again counts.
    assert len(packed.body) < 1000
    assert await unpacked_aside(packed) == whole
    assert len(jobs) == num_jobs


def test_a_tenant_has_half_and_the_oldest_go_first():
    size = RECIPE_BYTES + 1000
    store = RecipeStore(8 * size, 60.0)
    for number in range(8):
        store.put(recipe(f"a{number}", "a"))
    assert len(store) == 4
    assert store.num_bytes == 4 * size
    assert store.find("a3", "a") is None
    assert store.find("a4", "a") is not None
    for number in range(8):
        store.put(recipe(f"b{number}", "b"))
    store.put(recipe("c", "c"))
    assert len(store) == 8
    assert store.find("c", "c") is not None
    store.put(recipe("large", "d", num_bytes=5 * size))
    assert store.find("large", "d") is None


def test_a_recipe_is_its_tenants_and_expires():
    clock = Clock()
    store = RecipeStore(2**20, 60.0, clock)
    store.put(recipe("one", "a"))
    store.put(recipe("two", None))
    assert store.find("one", "b") is store.find("one", None) is store.find("two", "a") is None
    store.note_usage("one", "b", b"{}")
    store.note_usage("one", "a", b'{"x": 1}')
    assert store.find("one", "a") == replace(recipe("one", "a"), usage=b'{"x": 1}')
    clock.now = 50.0
    store.renew(["one", "unknown"])
    clock.now = 70.0
    assert store.find("two", None) is None
    assert store.find("one", "a") is not None
    clock.now = 111.0
    assert store.find("one", "a") is None
    assert store.num_bytes == 0


def test_those_that_are_renewed_stay_longest():
    clock, size = Clock(), RECIPE_BYTES + 1000
    store = RecipeStore(8 * size, 60.0, clock)
    for number in range(4):
        clock.now = float(number)
        store.put(recipe(f"a{number}", "a"))
    store.renew(["a0"])
    store.put(recipe("a4", "a"))
    assert store.find("a1", "a") is None
    assert store.find("a0", "a") is not None
    clock.now = 62.5
    assert [store.find(f"a{number}", "a") is None for number in (0, 2, 3)] == [False, True, False]
    clock.now = 64.0
    store.expire()
    assert len(store) == store.num_bytes == 0


def test_all_members_agree_on_the_holders():
    names = ["a", "b", "c", "d"]
    firsts = []
    for _ in range(60):
        membership = parse_membership("a", ())
        stream_id = mint_stream_id("stream", membership.tag)
        assert maker_of(stream_id, names) == "a"
        order = holders_of(stream_id, names)
        assert sorted(order) == ["b", "c", "d"]
        assert holders_of(stream_id, names[::-1]) == order
        # The maker does not know itself among its peers.
        assert holders_of(stream_id, names[1:]) == order
        firsts.append(order[0])
    assert min(firsts.count(name) for name in "bcd") > 5
