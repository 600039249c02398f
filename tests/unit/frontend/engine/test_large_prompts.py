"""Turns of large prompts: one at a time, with everything else between them."""

import asyncio

import pytest

from pagewire_frontend.prompts.prompt_encoding import LARGE_TOKENS, LargePrompts


async def test_between_two_large_prompts_the_loop_serves_others():
    prompts, at_once, most, ticks = LargePrompts(), 0, 0, []

    async def work(number):
        nonlocal at_once, most
        async with prompts.turn("a", LARGE_TOKENS):
            at_once += 1
            most = max(most, at_once)
            ticks.append(number)
            await asyncio.sleep(0)
            at_once -= 1

    async def other():
        while len(ticks) < 50:
            if ticks and ticks[-1] != "other":
                ticks.append("other")
            await asyncio.sleep(0)

    watching = asyncio.create_task(other())
    await asyncio.gather(*(work(number) for number in range(30)))
    watching.cancel()
    assert most == 1
    numbers = [tick for tick in ticks if tick != "other"]
    assert numbers == [*range(30)]
    # Nearly each is followed by a turn of somebody else.
    assert ticks.count("other") >= 20


async def test_short_prompts_do_not_wait():
    prompts = LargePrompts()
    async with prompts.turn("a", LARGE_TOKENS), prompts.turn("a", LARGE_TOKENS - 1):
        pass


async def test_a_turn_comes_back_from_whoever_fails_or_leaves():
    prompts = LargePrompts()
    with pytest.raises(ValueError, match="fault"):
        async with prompts.turn("a", LARGE_TOKENS):
            raise ValueError("fault")
    async with prompts.turn("a", LARGE_TOKENS):
        waiting = asyncio.create_task(prompts.turn("b", LARGE_TOKENS).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
    async with asyncio.timeout(5), prompts.turn("c", LARGE_TOKENS):
        pass


async def test_tenants_go_in_turns():
    prompts, order = LargePrompts(), []

    async def work(tenant):
        async with prompts.turn(tenant, LARGE_TOKENS):
            order.append(tenant)
            await asyncio.sleep(0)

    async with prompts.turn("first", LARGE_TOKENS):
        tasks = [asyncio.create_task(work(tenant)) for tenant in "aaab"]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order.index("b") == 1
