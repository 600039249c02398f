"""Where prompts are encoded, and what bounds those that wait: bytes in all and of a tenant, turns
between tenants, and a lane of their own for very long ones."""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from pagewire_frontend.prompts.fair_queue import FairQueue
from pagewire_frontend.prompts.generation_request import TextPrompt, TokenPrompt
from pagewire_frontend.prompts.prompt_encoding import SHORT_CHARS, PromptEncoder
from pagewire_frontend.prompts.text_threads import LONG_BYTES, MAX_OVERTAKING, TextThreads
from pagewire_shared.errors import InvalidRequestError, OverloadedError

MEBIBYTE = 2**20


@dataclass
class Gate:
    """Work that waits until it may end."""

    may_end: threading.Event = field(default_factory=threading.Event)
    began: list[object] = field(default_factory=list)

    def work(self, name: object = None) -> Any:
        def wait() -> object:
            self.began.append(name)
            assert self.may_end.wait(20)
            return name

        return wait


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.may_end.set()


@pytest.fixture
def threads():
    threads = TextThreads(8 * MEBIBYTE)
    yield threads
    threads.close()


async def until(is_true):
    async with asyncio.timeout(20):
        while not is_true():
            await asyncio.sleep(0.001)


def put(threads, tenant, num_bytes, work):
    return asyncio.create_task(threads.run(tenant, num_bytes, work))


async def test_one_tenant_cannot_take_all_of_it(threads, gate):
    mine = [put(threads, "a", MEBIBYTE, gate.work(number)) for number in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError, match="of your texts"):
        await threads.run("a", MEBIBYTE, gate.work())
    others = [put(threads, tenant, 2 * MEBIBYTE, gate.work(tenant)) for tenant in "bc"]
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError):
        await threads.run("d", 1, gate.work())
    gate.may_end.set()
    assert await asyncio.gather(*mine, *others) == [0, 1, 2, 3, "b", "c"]
    assert threads.budget.num_bytes == 0
    # Those who wait for long take turns: the others did not wait for all of the first.
    assert gate.began.index("b") < 3


async def test_who_leaves_before_its_turn_leaves_nothing(threads, gate):
    first = put(threads, "a", LONG_BYTES, gate.work("first"))
    second = put(threads, "a", LONG_BYTES, gate.work("second"))
    await until(lambda: gate.began)
    assert threads.num_waiting == 1
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert (threads.num_waiting, threads.budget.num_bytes) == (0, LONG_BYTES)
    # One under way holds its memory until it is through, whoever waits for it.
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert threads.budget.num_bytes == LONG_BYTES
    gate.may_end.set()
    await until(lambda: not threads.budget.num_bytes)
    assert gate.began == ["first"]


async def test_what_goes_wrong_is_told_and_holds_nothing(threads):
    with pytest.raises(ZeroDivisionError):
        await threads.run("a", LONG_BYTES, lambda: 1 // 0)
    assert threads.budget.num_bytes == 0
    assert await threads.run("a", LONG_BYTES, lambda: 7) == 7


async def test_very_long_texts_keep_no_other_waiting(threads, gate):
    long = [put(threads, "a", LONG_BYTES, gate.work(number)) for number in range(3)]
    await until(lambda: gate.began)
    assert await threads.run("a", LONG_BYTES - 1, lambda: "through") == "through"
    assert gate.began == [0]
    gate.may_end.set()
    assert await asyncio.gather(*long) == [0, 1, 2]


async def test_short_ones_overtake_those_that_wait_so_often_and_no_more(threads, gate):
    assert all(threads.may_overtake() for _ in range(2 * MAX_OVERTAKING))
    waiting = [put(threads, "a", LONG_BYTES, gate.work(number)) for number in range(2)]
    await until(lambda: gate.began)
    assert [threads.may_overtake() for _ in range(MAX_OVERTAKING + 2)].count(True) == MAX_OVERTAKING
    gate.may_end.set()
    await asyncio.gather(*waiting)
    assert threads.may_overtake()


class Model:
    """Notes in which thread it encodes."""

    def __init__(self):
        self.tokenizer = self
        self.threads = []

    def encode(self, text, *, add_special_tokens):
        self.threads.append(threading.current_thread())
        return [len(text), add_special_tokens]


@pytest.mark.parametrize("num_chars", [SHORT_CHARS, SHORT_CHARS + 1])
async def test_only_short_texts_are_encoded_in_the_event_loop(num_chars):
    encoder, model = PromptEncoder(max_chars=3000, max_bytes=MEBIBYTE), Model()
    options = {"tenant": None, "field": "prompt"}
    assert await encoder.encode(model, TextPrompt("x" * num_chars), **options) == [num_chars, True]
    is_here = model.threads == [threading.current_thread()]
    assert is_here is (num_chars <= SHORT_CHARS)
    assert await encoder.encode(model, TokenPrompt((1, 2)), **options) == [1, 2]
    with pytest.raises(InvalidRequestError, match="at most 3000 characters") as caught:
        await encoder.encode(model, TextPrompt("x" * 3001), **options)
    assert caught.value.field == "prompt"
    assert len(model.threads) == 1
    encoder.close()


async def test_the_largest_text_always_has_room():
    encoder, model = PromptEncoder(max_chars=MEBIBYTE, max_bytes=1), Model()
    text = "\N{GRINNING FACE}" * MEBIBYTE
    assert await encoder.encode(model, TextPrompt(text), tenant=None, field="prompt")
    encoder.close()


def test_tenants_take_turns():
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.put(item[0], item)
    assert queue.discard("a", "a2")
    assert not queue.discard("a", "a2")
    assert [queue.pop() for _ in range(len(queue))] == ["a1", "b1", "c1", "a3", "b2"]
    with pytest.raises(IndexError):
        queue.pop()
