"""Digests of salted keys: what waits for them and what is kept of them has bounds."""

import asyncio
import threading

import pytest

from pagewire_frontend.access import salted_keys
from pagewire_frontend.access.salted_keys import SaltedKeys
from pagewire_shared.errors import OverloadedError
from pagewire_shared.identity.api_key import parse_api_key
from pagewire_shared.identity.salted_key import salted

KEY = "sk-" + "a" * 40
KNOWN = [parse_api_key(f"team={salted(KEY)}", may_be_named=True)]


async def test_as_many_wait_as_may_and_others_are_asked_to_come_again(monkeypatch):
    may_end = threading.Event()
    monkeypatch.setattr(salted_keys, "_matching", lambda key, known: may_end.wait(10.0) and None)
    found = SaltedKeys()
    asked = [asyncio.ensure_future(found.find(f"{KEY}{n}", KNOWN)) for n in range(64)]
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError):
        await found.find(KEY, KNOWN)
    may_end.set()
    assert await asyncio.gather(*asked) == [None] * 64
    monkeypatch.undo()
    assert await found.find(KEY, KNOWN) is KNOWN[0]


async def test_what_is_kept_has_a_bound_and_the_oldest_goes(monkeypatch):
    monkeypatch.setattr(salted_keys, "_MAX_KEPT", 3)
    monkeypatch.setattr(salted_keys, "_matching", lambda key, known: None)
    found = SaltedKeys()
    for number in range(5):
        await found.find(f"{KEY}{number}", KNOWN)
    assert len(found._kept) == 3
    # A key that begins like none costs no digest, and is not kept.
    assert await found.find("other" * 9, KNOWN) is None
    assert len(found._kept) == 3
